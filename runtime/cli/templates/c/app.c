#include "wasmrun.h"

#define APP "local:{{name}}/app"
#define EXPORT(name) __attribute__((export_name(APP "#" name)))

// Gives the host memory to write arguments and results to.
__attribute__((export_name("cabi_realloc"))) void *cabi_realloc(void *old, size_t, size_t, size_t size) {
    return realloc(old, size);
}

// The class `tally`: its constructor makes a handle to what it has allocated.
typedef struct { double total; } tally_t;

__attribute__((import_module("[export]" APP), import_name("[resource-new]tally"))) int32_t tally_handle(tally_t *);

EXPORT("[constructor]tally") int32_t tally_new(void) {
    return tally_handle(calloc(1, sizeof(tally_t)));
}

EXPORT("[method]tally.add") double tally_add(tally_t *self, double n) {
    return self->total += n;
}

EXPORT("[dtor]tally") void tally_drop(tally_t *self) {
    free(self);
}

EXPORT("sum-part") double sum_part(const double *numbers, uint32_t len, uint32_t index, uint32_t parts) {
    double sum = 0;
    for (uint64_t i = (uint64_t)len * index / parts; i < (uint64_t)len * (index + 1) / parts; i++) sum += numbers[i];
    return sum;
}

// An argument as its bytes, by its type: wasmrun's docs/values.md has the table.
static argument_t f64(double n) {
    double *at = malloc(sizeof n);
    *at = n;
    return (argument_t){.value = {at, sizeof n}};
}

static argument_t u32(uint32_t n) {
    uint8_t *at = malloc(5);
    uint32_t len = 0;
    for (; n > 127; n >>= 7) at[len++] = (n & 127) | 128;
    at[len++] = n;
    return (argument_t){.value = {at, len}};
}

static argument_t object(object_t object) {
    return (argument_t){.is_object = 1, .object = object};
}

typedef struct { uint8_t is_error; union { double sum; error_t error; }; } sum_result_t;

// Our error is what we got as one: the failure is passed on as it is.
#define TRY(result) if ((result).is_error) return failed((result).error)

static const sum_result_t *failed(error_t error) {
    static sum_result_t result;
    result = (sum_result_t){.is_error = 1, .error = error};
    return &result;
}

EXPORT("sum") const sum_result_t *sum(uint32_t n, uint32_t parts) {
    double *numbers = malloc(n * sizeof *numbers);
    for (uint32_t i = 0; i < n; i++) numbers[i] = i + 1;
    object_result_t stored, tally, part, total;
    objects_put(BUFFER, F64, numbers, n * sizeof *numbers, &stored);
    TRY(stored);
    actors_create(&(start_t){.name = {"tally", 5}}, &tally);
    TRY(tally);
    argument_t zero = f64(0);
    actor_call(tally.object, "add", 3, &zero, 1, &total);
    TRY(total);
    for (uint32_t index = 0; index < parts; index++) {
        argument_t arguments[] = {object(stored.object), u32(index), u32(parts)};
        tasks_spawn(&(start_t){.name = {"sum-part", 8}, .arguments = {arguments, 3}}, &part);
        TRY(part);
        // Nothing has waited so far: the call runs when the task has ended, after the calls before it.
        argument_t made = object(part.object);
        actor_call(tally.object, "add", 3, &made, 1, &total);
        TRY(total);
    }
    value_result_t value;
    object_get(total.object, 0, 0, &value);
    TRY(value);
    static sum_result_t result;
    memcpy(&result.sum, value.value.bytes.start, sizeof result.sum);
    return &result;
}
