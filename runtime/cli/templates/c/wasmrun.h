// What wit/deps/wasmrun-runtime has, for C: by the canonical ABI a WIT record is a struct, a variant a tag and a union.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define IMPORT(module, name) __attribute__((import_module("wasmrun:runtime/" module "@0.1.0"), import_name(name)))

typedef struct { const void *start; uint32_t len; } bytes_t; // string, list<u8>
typedef int32_t object_t, actor_t;                           // handles

typedef struct {
    uint8_t tag; // 0 failed, 1 timed-out, 2 deadlock, 3 refused
    union {
        struct { uint8_t kind; bytes_t message, origin; struct { uint8_t some; bytes_t value; } payload; } failed;
        bytes_t why;
    };
} error_t;

typedef struct { uint8_t is_error; union { object_t object; error_t error; }; } object_result_t;
typedef struct { uint8_t is_error; union { struct { uint8_t form, number; bytes_t bytes; } value; error_t error; }; } value_result_t;
typedef struct { uint8_t is_object; union { bytes_t value; object_t object; }; } argument_t;

// The parameters of spawn and create. Without options what the manifest says counts.
typedef struct { bytes_t name; struct { const argument_t *start; uint32_t len; } arguments; uint64_t options[16]; } start_t;

enum { POSTCARD, BUFFER };
enum { U8, S8, U16, S16, U32, S32, U64, S64, F32, F64 };

IMPORT("tasks", "spawn") void tasks_spawn(const start_t *, object_result_t *);
IMPORT("actors", "create") void actors_create(const start_t *, object_result_t *);
IMPORT("actors", "[method]actor.call")
void actor_call(actor_t, const char *, uint32_t, const argument_t *, uint32_t, object_result_t *);
IMPORT("objects", "put") void objects_put(uint32_t form, uint32_t number, const void *, uint32_t, object_result_t *);
IMPORT("objects", "[method]object.get")
void object_get(object_t, uint32_t has_timeout, uint64_t timeout_ms, value_result_t *);
