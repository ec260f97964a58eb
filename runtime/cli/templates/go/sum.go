// Adds up numbers, in parts.
package main

// The part number `index`, from 0, of so many.
func sumOfPart(numbers []float64, index, parts int) float64 {
	sum := 0.0
	for _, number := range numbers[len(numbers)*index/parts : len(numbers)*(index+1)/parts] {
		sum += number
	}
	return sum
}

// Nothing runs it: the host calls what is exported.
func main() {}
