//! JSON that people give: `--json-args`, and the values of `--from-json`.

use std::path::PathBuf;
use std::str::FromStr;

use serde_json::Value as Json;
use wasmrun_model::value::read_json;
pub use wasmrun_model::value::{check_json, is_json};

/// JSON, or `@FILE`, which has it.
#[derive(Debug, Clone, PartialEq)]
pub enum JsonArg {
    Here(Json),
    File(PathBuf),
}

impl FromStr for JsonArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix('@') {
            return Ok(Self::File(path.into()));
        }
        match read_json(text.as_bytes()) {
            Ok(json) => Ok(Self::Here(json)),
            Err(error) if is_json(&error) => Err(error.to_string()),
            Err(error) => Err(format!(
                "{error}; it must be JSON, such as [1, \"a\"], or @FILE"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_or_a_file_is_read() {
        assert_eq!(
            "[1]".parse::<JsonArg>(),
            Ok(JsonArg::Here(serde_json::json!([1])))
        );
        assert_eq!("@a/b".parse::<JsonArg>(), Ok(JsonArg::File("a/b".into())));
        let error = "[1".parse::<JsonArg>().unwrap_err();
        assert!(
            error.contains("at line 1 column 2; it must be JSON"),
            "{error}"
        );
    }
}
