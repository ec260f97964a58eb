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
      (local.get $x)))
  (core instance $i (instantiate $m))
  (func (export "noop") (canon lift (core func $i "noop")))
  (func (export "busy-iterations") (param "n" u64) (result u64)
    (canon lift (core func $i "busy-iterations"))))
