package main

import "testing"

func TestPartsAddUpToTheWhole(t *testing.T) {
	numbers := []float64{1, 2, 3, 4, 5}
	sum := 0.0
	for index := range 3 {
		sum += sumOfPart(numbers, index, 3)
	}
	if sum != 15 {
		t.Fatal(sum)
	}
}
