//go:build wasip1

// What wit/deps/wasmrun-runtime has, for Go: by the canonical ABI a WIT record is a struct, a variant a tag and what it has, and
// addresses have 32 bits. And the memory that the host writes to.
package main

import (
	"encoding/binary"
	"math"
	"structs"
	"unsafe"
)

// A handle.
type handle int32

// A string or list.
type list struct {
	_     structs.HostLayout
	start uint32
	len   uint32
}

// What the host is to read in this call of it: Go sees addresses of 32 bits neither when it collects nor when it moves a stack.
var lent []any

func listOf[T any](items []T) list {
	lent = append(lent, items)
	return list{start: uint32(uintptr(unsafe.Pointer(unsafe.SliceData(items)))), len: uint32(len(items))}
}

// An error, which can be passed on as it is.
type hostError struct {
	_      structs.HostLayout
	tag    uint8 // 0 failed, 1 timed-out, 2 deadlock, 3 refused
	failed struct {
		_          structs.HostLayout
		kind       uint8
		message    list
		origin     list
		hasPayload uint8
		payload    list
	}
}

// An error, or what is at its place.
type hostResult[T any] struct {
	_       structs.HostLayout
	isError uint8
	error   hostError
}

func (result *hostResult[T]) get() (value T, failed *hostError) {
	if result.isError != 0 {
		return value, &result.error
	}
	return *(*T)(unsafe.Pointer(&result.error)), nil
}

type hostValue struct {
	_      structs.HostLayout
	form   uint8
	number uint8
	bytes  list
}

// An argument of a task or call: its bytes, or an object.
type argument struct {
	bytes  []byte
	object handle
}

func object(object handle) argument { return argument{object: object} }

// As its bytes, by its type: wasmrun's docs/values.md has the table.
func f64(n float64) argument {
	return argument{bytes: binary.LittleEndian.AppendUint64(nil, math.Float64bits(n))}
}

func f64Of(bytes []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(bytes)) }

func u32(n uint32) argument { return argument{bytes: binary.AppendUvarint(nil, uint64(n))} }

type hostArgument struct {
	_        structs.HostLayout
	isObject uint8
	bytes    list // or the handle, at its place
}

func lowered(arguments []argument) []hostArgument {
	made := make([]hostArgument, len(arguments))
	for at, it := range arguments {
		if it.bytes == nil {
			made[at] = hostArgument{isObject: 1, bytes: list{start: uint32(it.object)}}
		} else {
			made[at] = hostArgument{bytes: listOf(it.bytes)}
		}
	}
	return made
}

// The parameters of spawn and create. Without options what the manifest says counts.
type hostStart struct {
	_         structs.HostLayout
	name      list
	arguments list
	options   [16]uint64
}

//go:wasmimport wasmrun:runtime/tasks@0.1.0 spawn
func tasksSpawn(start *hostStart, result unsafe.Pointer)

//go:wasmimport wasmrun:runtime/actors@0.1.0 create
func actorsCreate(start *hostStart, result unsafe.Pointer)

//go:wasmimport wasmrun:runtime/actors@0.1.0 [method]actor.call
func actorCall(actor handle, method string, arguments unsafe.Pointer, len uint32, result unsafe.Pointer)

//go:wasmimport wasmrun:runtime/objects@0.1.0 put
func objectsPut(form, number uint32, bytes unsafe.Pointer, len uint32, result unsafe.Pointer)

//go:wasmimport wasmrun:runtime/objects@0.1.0 [method]object.get
func objectGet(object handle, hasTimeout uint32, timeoutMs uint64, result unsafe.Pointer)

// Starts a task of this function.
func spawn(function string, arguments ...argument) (handle, *hostError) {
	return started(tasksSpawn, function, arguments)
}

// Starts an actor of this class.
func create(class string, arguments ...argument) (handle, *hostError) {
	return started(actorsCreate, class, arguments)
}

func started(how func(*hostStart, unsafe.Pointer), name string, arguments []argument) (handle, *hostError) {
	var result hostResult[handle]
	how(&hostStart{name: listOf([]byte(name)), arguments: listOf(lowered(arguments))}, unsafe.Pointer(&result))
	lent = nil
	return result.get()
}

// Calls a method of an actor.
func call(actor handle, method string, arguments ...argument) (handle, *hostError) {
	var result hostResult[handle]
	made := lowered(arguments)
	actorCall(actor, method, unsafe.Pointer(unsafe.SliceData(made)), uint32(len(made)), unsafe.Pointer(&result))
	lent = nil
	return result.get()
}

// Stores numbers: a task has them as its list<f64>.
func put(numbers []float64) (handle, *hostError) {
	var result hostResult[handle]
	const buffer, f64 = 1, 9
	objectsPut(buffer, f64, unsafe.Pointer(unsafe.SliceData(numbers)), uint32(8*len(numbers)), unsafe.Pointer(&result))
	return result.get()
}

// Waits for an object: its bytes.
func get(object handle) ([]byte, *hostError) {
	var result hostResult[hostValue]
	objectGet(object, 0, 0, unsafe.Pointer(&result))
	value, failed := result.get()
	if failed != nil {
		return nil, failed
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(uintptr(value.bytes.start))), value.bytes.len), nil
}

// Memory that the host writes to. While it writes nothing may be asked of it, and Go's own allocator does ask, for the time, when it
// collects. So it is in pages that Go's runtime takes and does not look at.
//
//go:linkname sbrk runtime.sbrk
func sbrk(bytes uintptr) unsafe.Pointer

// The last of the pieces of that memory, each twice as large as the one before it, and what of it is taken.
var piece, pieceBytes, taken uintptr

//go:wasmexport cabi_realloc
func hostAllocates(_ unsafe.Pointer, _, align, bytes uint32) unsafe.Pointer {
	at := (taken + uintptr(align) - 1) &^ (uintptr(align) - 1)
	if at+uintptr(bytes) > pieceBytes {
		pieceBytes = max(64<<10, 2*pieceBytes, uintptr(bytes))
		piece, at = uintptr(pages(pieceBytes)), 0
	}
	taken = at + uintptr(bytes)
	return unsafe.Pointer(piece + at)
}

// Ends a call: nothing looks any more at what the host has written in it.
func forget() { taken = 0 }

// What the adapter of WASI has for itself.
//
//go:wasmexport cabi_realloc_adapter
func adapterAllocates(_ unsafe.Pointer, _, _, bytes uint32) unsafe.Pointer {
	return pages(uintptr(bytes))
}

func pages(bytes uintptr) unsafe.Pointer {
	at := sbrk(bytes)
	if at == nil {
		panic("out of memory")
	}
	return at
}
