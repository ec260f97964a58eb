//! What to say of types that have no place in a signature: why, and what to write instead.

use quote::ToTokens;
use syn::Type;

/// What to say of a type that has no place in a signature.
pub(super) fn unknown(name: &str) -> String {
    let (why, advice) = match name {
        "usize" => ("has not the same size everywhere", "use `u64` or `u32`"),
        "isize" => ("has not the same size everywhere", "use `i64` or `i32`"),
        "u128" | "i128" => ("has no type in WIT", "use two 64-bit numbers, or text"),
        "HashMap" | "BTreeMap" => ("has no type in WIT", "use `Vec<(K, V)>` and collect it"),
        "HashSet" | "BTreeSet" | "VecDeque" | "LinkedList" | "BinaryHeap" => {
            ("has no type in WIT", "use `Vec<T>` and collect it")
        }
        "Box" | "Rc" | "Arc" | "RefCell" | "Cell" | "Mutex" | "Cow" => {
            ("has no type in WIT", "use the value itself")
        }
        "str" | "PathBuf" | "Path" | "OsString" => ("has no type in WIT", "use `String`"),
        "Duration" | "Instant" | "SystemTime" => {
            ("has no type in WIT", "use a `u64` of milliseconds")
        }
        "Self" => (
            "has no meaning in a signature that others see",
            "write the type's name",
        ),
        "Vec" | "Option" | "Future" | "Mapped" => {
            ("is not complete", "write what it is of, as in `Vec<u8>`")
        }
        _ => {
            return format!(
                "type `{name}` is neither declared in this module nor known: declare it here, or put \
                 `#[wasmrun_guest::value]` on it and name it in `#[module(types(crate::path::{name}))]`"
            );
        }
    };
    format!("`{name}` {why}: {advice}")
}

pub(super) fn of_reference(to: &Type) -> String {
    let instead = match to {
        Type::Path(path) if path.path.is_ident("str") => "String".to_owned(),
        Type::Slice(slice) => format!("Vec<{}>", slice.elem.to_token_stream()),
        other => other.to_token_stream().to_string(),
    };
    format!("a reference cannot cross between tasks: take `{instead}`")
}
