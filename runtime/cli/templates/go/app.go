//go:build wasip1

// What stands behind wit/world.wit. Numbers go in and out as they are, lists as an address and a length.
package main

import (
	"structs"
	"unsafe"
)

// The class `tally`: its constructor makes a handle to what stands here by its number.
type tally struct{ total float64 }

var tallies = map[int32]*tally{}
var lastTally int32

//go:wasmimport [export]local:{{name}}/app [resource-new]tally
func tallyHandle(number int32) int32

//go:wasmexport local:{{name}}/app#[constructor]tally
func newTally() int32 {
	lastTally++
	tallies[lastTally] = &tally{}
	return tallyHandle(lastTally)
}

//go:wasmexport local:{{name}}/app#[method]tally.add
func addToTally(number int32, n float64) float64 {
	tally := tallies[number]
	tally.total += n
	return tally.total
}

//go:wasmexport local:{{name}}/app#[dtor]tally
func dropTally(number int32) {
	delete(tallies, number)
}

//go:wasmexport local:{{name}}/app#sum-part
func sumPart(numbers *float64, len, index, parts uint32) float64 {
	defer forget()
	return sumOfPart(unsafe.Slice(numbers, len), int(index), int(parts))
}

type sumResult struct {
	_       structs.HostLayout
	isError uint8
	_       [7]uint8
	error   hostError // or the sum, at its place
}

// What sum returns is read after it has returned.
var result sumResult

//go:wasmexport local:{{name}}/app#sum
func sum(n, parts uint32) *sumResult {
	sum, failed := sumInParts(n, parts)
	if failed != nil {
		result = sumResult{isError: 1, error: *failed}
	} else {
		*(*float64)(unsafe.Pointer(&result.error)) = sum
	}
	return &result
}

//go:wasmexport cabi_post_local:{{name}}/app#sum
func sumWasRead(*sumResult) { forget() }

func sumInParts(n, parts uint32) (float64, *hostError) {
	numbers := make([]float64, n)
	for i := range numbers {
		numbers[i] = float64(i + 1)
	}
	stored, failed := put(numbers)
	if failed != nil {
		return 0, failed
	}
	tally, failed := create("tally")
	if failed != nil {
		return 0, failed
	}
	total, failed := call(tally, "add", f64(0))
	if failed != nil {
		return 0, failed
	}
	for index := range parts {
		part, failed := spawn("sum-part", object(stored), u32(index), u32(parts))
		if failed != nil {
			return 0, failed
		}
		// Nothing has waited so far: the call runs when the task has ended, after the calls before it.
		if total, failed = call(tally, "add", object(part)); failed != nil {
			return 0, failed
		}
	}
	bytes, failed := get(total)
	if failed != nil {
		return 0, failed
	}
	return f64Of(bytes), nil
}
