;; The built-in guest of `wasmrun bench`: the exports that a bench guest must have, in a sandbox
;; of the shape that compilers make (1.1 MiB of memory, a table, some data).
(component
  (core module $m
    (memory (export "memory") 17)
    (table 64 funcref)
    (data (i32.const 1024) "wasmrun")
    (func (export "noop"))
    ;; A multiply-and-rotate chain: each step needs the one before.
    (func (export "busy-iterations") (param $n i64) (result i64)
      (local $x i64)
      (local.set $x (i64.const 0x9e3779b97f4a7c15))
      (loop $again
        (if (i64.ne (local.get $n) (i64.const 0))
          (then
            (local.set $x
              (i64.add
                (i64.rotl (i64.mul (local.get $x) (i64.const 0xbf58476d1ce4e5b9)) (i64.const 31))
                (local.get $n)))
            (local.set $n (i64.sub (local.get $n) (i64.const 1)))
            (br $again))))
      (local.get $x))
    ;; Memory for values, one after the other: the sandbox ends with the call.
    (global $next (mut i32) (i32.const 1114112))
    (func $realloc (export "realloc") (param i32 i32 i32) (param $bytes i32) (result i32)
      (local $at i32)
      (local $pages i32)
      (local.set $at (i32.and (i32.add (global.get $next) (i32.const 63)) (i32.const -64)))
      (global.set $next (i32.add (local.get $at) (local.get $bytes)))
      (local.set $pages
        (i32.sub
          (i32.shr_u (i32.add (global.get $next) (i32.const 65535)) (i32.const 16))
          (memory.size)))
      (if (i32.gt_s (local.get $pages) (i32.const 0))
        (then
          (if (i32.eq (memory.grow (local.get $pages)) (i32.const -1)) (then (unreachable)))))
      (local.get $at))
    ;; Where a list is, for the host.
    (func $list (param $at i32) (param $bytes i32) (result i32)
      (i32.store (i32.const 512) (local.get $at))
      (i32.store (i32.const 516) (local.get $bytes))
      (i32.const 512))
    (func (export "make") (param $bytes i32) (result i32)
      (local $at i32)
      (local.set $at
        (call $realloc (i32.const 0) (i32.const 0) (i32.const 1) (local.get $bytes)))
      (memory.fill (local.get $at) (i32.const 7) (local.get $bytes))
      (call $list (local.get $at) (local.get $bytes)))
    (func (export "echo") (param i32 i32) (result i32)
      (call $list (local.get 0) (local.get 1))))
  (core instance $i (instantiate $m))
  (func (export "noop") (canon lift (core func $i "noop")))
  (func (export "busy-iterations") (param "n" u64) (result u64)
    (canon lift (core func $i "busy-iterations")))
  (func (export "make") (param "n" u32) (result (list u8))
    (canon lift (core func $i "make") (memory (core memory $i "memory"))))
  (func (export "echo") (param "data" (list u8)) (result (list u8))
    (canon lift (core func $i "echo")
      (memory (core memory $i "memory")) (realloc (core func $i "realloc")))))
