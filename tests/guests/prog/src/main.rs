//! A program that does everything a test may want of one, good and bad.
//!
//! The first argument says what; see `USAGE`. Built for `wasm32-wasip1` (a core module with
//! `_start`) and `wasm32-wasip2` (a component with `wasi:cli/run`).

use std::hint::black_box;
use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::time::Duration;
use std::{env, fs, thread};

const USAGE: &str = "usage: prog COMMAND
  exit N            end with exit code N
  args [ARG…]       print the arguments, one a line
  cat               copy stdin to stdout
  env [NAME]        print one environment variable, or all of them in order of name
  cwd               print the working directory
  ls DIR            print the names in a directory, in order
  read FILE         print a file
  write FILE TEXT   write a file
  stderr TEXT       print a line to stderr
  flood             write lines to stdout for ever
  panic [TEXT]      panic
  trap              run an `unreachable` instruction
  recurse           use up the stack
  alloc MIB         take so much memory, write to it, and print how much
  spin              be busy for ever
  sleep [MS]        wait so long; for ever without MS";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("prog: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<ExitCode, String> {
    match words {
        ["exit", code] => return Ok(ExitCode::from(number::<u8>(code)?)),
        ["args", rest @ ..] => rest.iter().for_each(|arg| println!("{arg}")),
        ["cat"] => copy_stdin()?,
        ["env"] => {
            let mut all: Vec<_> = env::vars().collect();
            all.sort();
            all.iter()
                .for_each(|(name, value)| println!("{name}={value}"));
        }
        ["env", name] => {
            println!(
                "{}",
                env::var(name).map_err(|error| format!("{name}: {error}"))?
            );
        }
        ["cwd"] => println!(
            "{}",
            env::current_dir().map_err(|e| e.to_string())?.display()
        ),
        ["ls", dir] => list(dir)?,
        ["read", file] => {
            let bytes = fs::read(file).map_err(|error| format!("{file}: {error}"))?;
            io::stdout()
                .write_all(&bytes)
                .map_err(|error| error.to_string())?;
        }
        ["write", file, text] => {
            fs::write(file, text).map_err(|error| format!("{file}: {error}"))?;
        }
        ["stderr", text] => eprintln!("{text}"),
        ["flood"] => flood(),
        ["panic"] => panic!("asked to"),
        ["panic", text] => panic!("{text}"),
        ["trap"] => trap(),
        ["recurse"] => println!("{}", descend(0, black_box(u64::MAX))),
        ["alloc", mib] => allocate(number(mib)?)?,
        ["spin"] => spin(),
        ["sleep"] => loop {
            thread::sleep(Duration::from_secs(3600));
        },
        ["sleep", ms] => thread::sleep(Duration::from_millis(number(ms)?)),
        _ => {
            eprintln!("{USAGE}");
            return Ok(ExitCode::from(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn number<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{text}: {error}"))
}

fn copy_stdin() -> Result<(), String> {
    let mut buffer = vec![0; 64 << 10];
    let (mut stdin, mut stdout) = (io::stdin().lock(), io::stdout().lock());
    loop {
        match stdin
            .read(&mut buffer)
            .map_err(|error| format!("stdin: {error}"))?
        {
            0 => return stdout.flush().map_err(|error| format!("stdout: {error}")),
            n => stdout
                .write_all(&buffer[..n])
                .map_err(|error| format!("stdout: {error}"))?,
        }
    }
}

fn list(dir: &str) -> Result<(), String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(|error| format!("{dir}: {error}"))? {
        let entry = entry.map_err(|error| format!("{dir}: {error}"))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    names.iter().for_each(|name| println!("{name}"));
    Ok(())
}

fn flood() -> ! {
    let line = "flood ".repeat(170) + "\n";
    let mut stdout = io::stdout().lock();
    // A full or closed stdout is the host's to deal with; this guest is as rude as can be.
    loop {
        let _ = stdout.write_all(line.as_bytes());
    }
}

fn trap() {
    #[cfg(target_family = "wasm")]
    core::arch::wasm32::unreachable();
    #[cfg(not(target_family = "wasm"))]
    std::process::abort();
}

/// Calls itself `limit` times. The compiler does not know the limit, and what is done with each
/// result keeps it from making a loop of this. No memory is used, so that the call stack ends first.
#[inline(never)]
fn descend(depth: u64, limit: u64) -> u64 {
    if depth == limit {
        return depth;
    }
    descend(depth + 1, limit).rotate_left(1) ^ depth
}

fn allocate(mib: usize) -> Result<(), String> {
    // At the very most what 32 bits can say, which no guest can have.
    let length = mib.saturating_mul(1 << 20);
    let mut memory: Vec<u8> = Vec::new();
    if memory.try_reserve_exact(length).is_err() {
        return Err(format!("out of memory: cannot have {mib} MiB"));
    }
    memory.resize(length, 1);
    println!("{}", black_box(&memory).len() >> 20);
    Ok(())
}

fn spin() -> ! {
    let mut x = 1_u64;
    loop {
        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}
