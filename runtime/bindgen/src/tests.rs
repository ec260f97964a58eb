//! The code of a world that has a type of every kind, and what there is no code of.

use crate::{BindgenError, Module};

#[test]
fn code_is_what_is_expected() {
    let shop = Module::from_wit("shop.wit", include_str!("../expected/shop.wit")).unwrap();
    let code = shop.generate().unwrap();
    let expected = include_str!("../expected/shop.rs");
    for (found, expected) in code.lines().zip(expected.lines()) {
        assert_eq!(found, expected, "in\n{code}");
    }
    assert_eq!(code, expected);
}

#[test]
fn typescript_has_the_types_of_jco() {
    let shop = Module::from_wit("shop.wit", include_str!("../expected/shop.wit")).unwrap();
    let code = shop.typescript().unwrap();
    for line in [
        "export type Tier = 'guest' | 'site-admin';",
        "  keepCold?: boolean;",
        "  /** As the label says. */",
        "  type: string;",
        "  price: bigint;",
        "  weight?: number | undefined;",
        "  sizes: Uint8Array;",
        "  | { tag: 'pickup' }",
        "  | { tag: 'parcel'; val: [string, string] }",
        "  | { tag: 'at'; val: wasmrun.Result<[number], string> };",
        "  rows: wasmrun.Ref<any>[];",
        "  clerk?: wasmrun.Actor | undefined;",
        "  readonly add: wasmrun.Method<[article: Article], bigint>;",
        "  readonly price: Module['orders']['price'];",
        "    readonly price: wasmrun.Fn<[order: Order, delivery: Delivery], number>;",
        "    readonly load: wasmrun.Fn<[name: string], void>;",
        "    readonly Counter: wasmrun.Class<[start: bigint], Counter>;",
        "  readonly print: wasmrun.Fn<[what: Article], Receipt>;",
        "    readonly who: wasmrun.Fn<[], boolean>;",
        "// Not here: example:shop/orders@1.2.0#later: its type has a future.",
    ] {
        assert!(code.lines().any(|it| it == line), "no '{line}' in\n{code}");
    }
    assert!(!code.contains("Unused"), "{code}");
}

#[test]
fn core_modules_have_types_in_a_section() {
    let wit = "package a:b; world w { export f: func(n: u8) -> u8; }";
    let Module { resolve, world, .. } = Module::from_wit("w", wit).unwrap();
    let mut core = b"\0asm\x01\0\0\0".to_vec();
    let encoding = wit_component::StringEncoding::UTF8;
    wit_component::embed_component_metadata(&mut core, &resolve, world, encoding).unwrap();
    let code = Module::from_bytes("it.wasm", &core).unwrap().generate();
    assert!(code.unwrap().contains("\nf func(n: u8) -> u8\n"));
}

#[test]
fn what_has_nothing_to_call_is_refused() {
    let said = |made: Result<Module, BindgenError>| match made.and_then(|it| it.generate()) {
        Err(error) => error.to_string(),
        Ok(code) => panic!("{code}"),
    };
    let text = said(Module::from_bytes("it.wasm", b"no module"));
    let says = "it.wasm has no types to make code of: it is no wasm module; give";
    assert!(text.starts_with(says), "{text}");
    let text = said(Module::from_bytes("it.wasm", b"\0asm\x01\0\0\0"));
    assert!(text.contains("it.wasm exports no function"), "{text}");
    let wit = "package a:b; world w { export f: func() -> stream<u8>; }";
    let text = said(Module::from_wit("w.wit", wit));
    assert!(text.contains("f: its type has a stream"), "{text}");
    let text = said(Module::from_file("none.wasm"));
    assert!(text.contains("cannot read none.wasm"), "{text}");
    // What a build script ends with.
    let shown = format!("{:?}", Module::from_file("none.wasm").unwrap_err());
    assert_eq!(shown, text);
}
