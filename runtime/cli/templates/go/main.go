// Adds up the numbers 1 to n: `-- 1000`. Or a part of them, by its number from 0: `-- 1000 4 2`.
package main

import (
	"fmt"
	"log"
	"os"
	"strconv"
)

func sumPart(n, parts, index int) int {
	sum := 0
	for i := n * index / parts; i < n*(index+1)/parts; i++ {
		sum += i + 1
	}
	return sum
}

func main() {
	log.SetFlags(0)
	numbers := []int{0, 1, 0} // n, parts and index
	if len(os.Args) < 2 || len(os.Args)-1 > len(numbers) {
		log.Fatal("arguments: N [PARTS INDEX]")
	}
	for at, text := range os.Args[1:] {
		number, err := strconv.Atoi(text)
		if err != nil {
			log.Fatal(err)
		}
		numbers[at] = number
	}
	fmt.Println(sumPart(numbers[0], numbers[1], numbers[2]))
}
