//! `cargo xtask`: the project's own chores, in plain Rust so that they run wherever cargo does.
//!
//! Owns the command names and the help text. Each command is a module: `guests` builds the
//! WebAssembly modules, `demo` shows the project at work, `test` (in `check`) does all that CI
//! does, `bench` measures. Anything a person can run by hand is shown as the command they would type.

mod against_serve;
mod bench;
mod browser;
mod check;
mod debian;
mod demo;
mod folders;
mod guests;
mod idle;
mod imports;
mod inside;
mod js;
mod layers;
mod outside;
mod page;
mod python;
mod shell;
mod tutorial;
mod wasm_std;

use std::process::ExitCode;

const HELP: &str = "\
The project's chores.

Usage: cargo xtask COMMAND [ARGS…]

Commands:
  demo              build everything, then count this project's code, render a picture, let a
                    policy learn, and share work on three nodes, in three languages, through the
                    real `wasmrun`
  test [STEP…]      everything CI checks, in order; or only the steps named (--list names them)
  simulate [--seeds N]
                    every simulation with N seeds (10,000 if not given)
  python            build the Python package's wheel, with the program in it, to target/wheels
  js                pack the npm package, with the program in it, and create-wasmrun, to target/npm
  screenshots       the pictures of a node's page in docs/images, by a Chromium without a screen
  guests            build the guests of examples/ and tests/guests/ to target/guests/*.wasm
  bench [ARGS…]     build everything, then `wasmrun bench` with ARGS; with `--against ray`, the
                    same cases on Ray beside ours; with `--against serve`, `wasmrun serve` and other
                    servers of HTTP; with `--idle-nodes N`, what an idle cluster of N nodes on this
                    machine costs; with `--page`, what a long history and an open page cost, with a
                    Chromium
  help              this text";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match args.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("", args.as_slice()),
    };
    let outcome = match command {
        "demo" if rest.is_empty() => demo::run(),
        "python" if rest.is_empty() => python::run(),
        "js" if rest.is_empty() => js::run(),
        "screenshots" if rest.is_empty() => check::screenshots(),
        "guests" if rest.is_empty() => guests::build().map(|_| ()),
        "test" => check::run(rest),
        "simulate" => match rest {
            [] => check::simulate("10000"),
            [flag, seeds] if flag == "--seeds" && seeds.parse::<u32>().is_ok_and(|it| it > 0) => {
                check::simulate(seeds)
            }
            _ => Err(anyhow::anyhow!(
                "`simulate` takes --seeds N, and N is a number from 1"
            )),
        },
        "bench" => bench::run(rest),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        _ => {
            match command {
                "" => {}
                "demo" | "guests" | "js" | "python" | "screenshots" => {
                    eprintln!("error: `{command}` takes no arguments\n")
                }
                _ => eprintln!("error: no such command: {command}\n"),
            }
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
