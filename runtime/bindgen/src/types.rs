//! Types of WIT, as the node writes them and in Rust.
//!
//! Owns which types values can have, and their names in Rust. Must not: write code.
//!
//! Invariant: [`function`] writes a type as `ValueType` of `wasmrun-model` does, which a build script would have to compile.

use wit_parser::{
    Function, Handle, InterfaceId, Param, Resolve, Type, TypeDefKind, TypeId, TypeOwner,
};

/// The most items of a tuple that Rust can compare and show.
const TUPLE_MAX: usize = 12;

/// A function's type without its first `skip` parameters, as the node writes it.
///
/// # Errors
/// Why it cannot be called.
pub(crate) fn function(resolve: &Resolve, of: &Function, skip: usize) -> Result<String, String> {
    signature(
        resolve,
        &of.params[skip.min(of.params.len())..],
        of.result.as_ref(),
    )
}

/// As [`function`].
pub(crate) fn signature(
    resolve: &Resolve,
    params: &[Param],
    result: Option<&Type>,
) -> Result<String, String> {
    let params = params.iter().map(|it| (it.name.as_str(), it.ty));
    let params = members(resolve, params)?;
    Ok(match result {
        Some(ty) => format!("func({params}) -> {}", spelled(resolve, ty)?),
        None => format!("func({params})"),
    })
}

fn members<'a>(
    resolve: &Resolve,
    members: impl Iterator<Item = (&'a str, Type)>,
) -> Result<String, String> {
    let members = members.map(|(name, ty)| Ok(format!("{name}: {}", spelled(resolve, &ty)?)));
    Ok(members.collect::<Result<Vec<_>, String>>()?.join(", "))
}

/// A type as the node writes it: WIT, with records and the like spelled out in place.
fn spelled(resolve: &Resolve, ty: &Type) -> Result<String, String> {
    let of = |ty: &Type| spelled(resolve, ty);
    let id = match ty {
        Type::Id(id) => *id,
        Type::ErrorContext => return Err("its type has an error-context".into()),
        plain => return Ok(plain_name(*plain).to_owned()),
    };
    Ok(match &resolve.types[id].kind {
        TypeDefKind::Type(ty) => of(ty)?,
        TypeDefKind::List(item) => format!("list<{}>", of(item)?),
        TypeDefKind::Option(some) => format!("option<{}>", of(some)?),
        TypeDefKind::Result(result) => match (&result.ok, &result.err) {
            (None, None) => "result".into(),
            (Some(ok), None) => format!("result<{}>", of(ok)?),
            (None, Some(err)) => format!("result<_, {}>", of(err)?),
            (Some(ok), Some(err)) => format!("result<{}, {}>", of(ok)?, of(err)?),
        },
        TypeDefKind::Tuple(tuple) if tuple.types.len() > TUPLE_MAX => {
            return Err(format!(
                "its type has a tuple of more than {TUPLE_MAX} items; use a record"
            ));
        }
        TypeDefKind::Tuple(tuple) => {
            let items: Result<Vec<_>, _> = tuple.types.iter().map(of).collect();
            format!("tuple<{}>", items?.join(", "))
        }
        TypeDefKind::Record(record) => {
            let fields = record.fields.iter().map(|it| (it.name.as_str(), it.ty));
            format!("record {{ {} }}", members(resolve, fields)?)
        }
        TypeDefKind::Variant(variant) => {
            let cases = variant.cases.iter().map(|case| match &case.ty {
                Some(ty) => Ok(format!("{}({})", case.name, of(ty)?)),
                None => Ok(case.name.clone()),
            });
            let cases: Result<Vec<_>, String> = cases.collect();
            format!("variant {{ {} }}", cases?.join(", "))
        }
        TypeDefKind::Enum(names) => {
            let cases: Vec<_> = names.cases.iter().map(|it| it.name.as_str()).collect();
            format!("enum {{ {} }}", cases.join(", "))
        }
        TypeDefKind::Flags(names) => {
            let flags: Vec<_> = names.flags.iter().map(|it| it.name.as_str()).collect();
            format!("flags {{ {} }}", flags.join(", "))
        }
        TypeDefKind::Handle(Handle::Own(id)) => match handle(resolve, *id) {
            Some(Kind::Object) => "object".into(),
            Some(Kind::Actor) => "actor".into(),
            None => {
                return Err(
                    "its type has a resource that is neither an object's handle nor an actor's"
                        .into(),
                );
            }
        },
        other => return Err(format!("its type has a {}", other.as_str())),
    })
}

fn plain_name(ty: Type) -> &'static str {
    match ty {
        Type::Bool => "bool",
        Type::U8 => "u8",
        Type::U16 => "u16",
        Type::U32 => "u32",
        Type::U64 => "u64",
        Type::S8 => "s8",
        Type::S16 => "s16",
        Type::S32 => "s32",
        Type::S64 => "s64",
        Type::F32 => "f32",
        Type::F64 => "f64",
        Type::Char => "char",
        Type::String => "string",
        Type::ErrorContext | Type::Id(_) => unreachable!("they are no plain types"),
    }
}

/// What a handle stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Object,
    Actor,
}

/// What a handle to a resource stands for, if it is one of the runtime's.
fn handle(resolve: &Resolve, id: TypeId) -> Option<Kind> {
    let definition = &resolve.types[behind(resolve, id)];
    let TypeOwner::Interface(owner) = definition.owner else {
        return None;
    };
    let interface = &resolve.interfaces[owner];
    let package = &resolve.packages[interface.package?].name;
    if (&*package.namespace, &*package.name) != ("wasmrun", "runtime") {
        return None;
    }
    match (interface.name.as_deref()?, definition.name.as_deref()?) {
        ("objects", "object") => Some(Kind::Object),
        ("actors", "actor") => Some(Kind::Actor),
        _ => None,
    }
}

/// What a type is a handle of.
pub(crate) fn kind(resolve: &Resolve, ty: Type) -> Option<Kind> {
    let Type::Id(id) = ty else { return None };
    match resolve.types[behind(resolve, id)].kind {
        TypeDefKind::Handle(Handle::Own(id)) => handle(resolve, id),
        _ => None,
    }
}

/// The type behind aliases.
pub(crate) fn behind(resolve: &Resolve, mut id: TypeId) -> TypeId {
    while let TypeDefKind::Type(Type::Id(behind)) = &resolve.types[id].kind {
        id = *behind;
    }
    id
}

/// Adds the types within one, itself among them, that have definitions in Rust.
pub(crate) fn defined(resolve: &Resolve, ty: Type, found: &mut Vec<TypeId>) {
    let Type::Id(id) = ty else { return };
    let id = behind(resolve, id);
    let mut all = |types: &mut dyn Iterator<Item = Type>| {
        types.for_each(|ty| defined(resolve, ty, found));
    };
    match &resolve.types[id].kind {
        TypeDefKind::Type(ty) | TypeDefKind::List(ty) | TypeDefKind::Option(ty) => {
            all(&mut [*ty].into_iter());
        }
        TypeDefKind::Result(it) => all(&mut it.ok.into_iter().chain(it.err)),
        TypeDefKind::Tuple(tuple) => all(&mut tuple.types.iter().copied()),
        TypeDefKind::Record(record) => all(&mut record.fields.iter().map(|it| it.ty)),
        TypeDefKind::Variant(variant) => all(&mut variant.cases.iter().filter_map(|it| it.ty)),
        TypeDefKind::Enum(_) | TypeDefKind::Flags(_) => {}
        _ => return,
    }
    let is_defined = matches!(
        resolve.types[id].kind,
        TypeDefKind::Record(_)
            | TypeDefKind::Variant(_)
            | TypeDefKind::Enum(_)
            | TypeDefKind::Flags(_)
    );
    if is_defined && !found.contains(&id) {
        found.push(id);
    }
}

/// The interface that owns a type; none if the world does.
pub(crate) fn interface_of(resolve: &Resolve, id: TypeId) -> Option<InterfaceId> {
    match resolve.types[id].owner {
        TypeOwner::Interface(id) => Some(id),
        TypeOwner::World(_) | TypeOwner::None => None,
    }
}

/// A type in Rust. `path` gives the name, at this place of the code, of a type that has a definition.
pub(crate) fn rust(resolve: &Resolve, ty: Type, path: &dyn Fn(TypeId) -> String) -> String {
    let of = |ty: &Type| rust(resolve, *ty, path);
    let payload = |ty: &Option<Type>| ty.as_ref().map_or("()".into(), of);
    let id = match ty {
        Type::Id(id) => behind(resolve, id),
        Type::S8 => return "i8".into(),
        Type::S16 => return "i16".into(),
        Type::S32 => return "i32".into(),
        Type::S64 => return "i64".into(),
        Type::String => return "String".into(),
        plain => return plain_name(plain).into(),
    };
    match &resolve.types[id].kind {
        TypeDefKind::Type(ty) => of(ty),
        TypeDefKind::List(item) => format!("Vec<{}>", of(item)),
        TypeDefKind::Option(some) => format!("Option<{}>", of(some)),
        TypeDefKind::Result(it) => format!("Result<{}, {}>", payload(&it.ok), payload(&it.err)),
        TypeDefKind::Tuple(tuple) => {
            let items: Vec<_> = tuple.types.iter().map(of).collect();
            match &items[..] {
                [one] => format!("({one},)"),
                items => format!("({})", items.join(", ")),
            }
        }
        TypeDefKind::Handle(_) => match kind(resolve, ty) {
            Some(Kind::Object) => "typed::Object".into(),
            _ => "typed::ActorHandle".into(),
        },
        _ => path(id),
    }
}
