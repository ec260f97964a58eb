package main

import "testing"

func TestPartsAddUpToTheWhole(t *testing.T) {
	sum := 0
	for index := range 4 {
		sum += sumPart(1000, 4, index)
	}
	if sum != 500500 {
		t.Fatal(sum)
	}
}
