//! `wasmrun`, the command: reads arguments, calls the node, prints. Nothing else.

mod annotate;
mod args;
mod bench;
mod common;
mod daemon;
mod dashboard;
mod doctor;
mod inspect;
mod log;
mod login;
mod mcp;
mod new;
mod serve;
mod shell;
mod simulate;
mod stubs;
mod submit;
mod things;

use std::num::{IntErrorKind, ParseIntError};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, ValueHint};

// As the rest of the crate names them.
use crate::common::{local, names, printer, remote};
use crate::shell::{fail, outfile, signals, stdio};

use crate::args::{Cli, Command, NodeCommand, hint};
use crate::fail::{CommandResult, Exit, Failure};
use crate::printer::Printer;

fn main() {
    let cli = parse().unwrap_or_else(|told| {
        // Help that nobody gets is a failure, too.
        let printed = printer::written(told.print());
        std::process::exit(
            printed.map_or_else(|failure| failure.exit.code(), |()| told.exit_code()),
        )
    });
    allow_open_files();
    let printer = Printer::new(&cli.global);
    let exit = match run(&cli, &printer) {
        Ok(()) => 0,
        Err(Failure { exit, error }) => {
            if let Some(error) = error.filter(|_| exit != Exit::BrokenPipe) {
                printer.error(&error, exit);
            }
            exit.code()
        }
    };
    // Threads may still be inside the kernel, reading a terminal or a pipe: don't wait for them.
    std::process::exit(exit);
}

/// The command line, with what the environment says of it.
fn parse() -> Result<Cli, clap::Error> {
    let mut command = with_negative_numbers(without_empty_variables(Cli::command()));
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    cli.map_err(|told| match (told.kind(), not_text(&command)) {
        (ErrorKind::InvalidUtf8, Some(what)) => {
            let why = format!("{what} is not UTF-8, and must be text\n");
            clap::Error::raw(ErrorKind::InvalidUtf8, why)
        }
        (ErrorKind::ValueValidation, _) => match of_variable(&command, &told) {
            Some(why) => clap::Error::raw(ErrorKind::ValueValidation, why),
            None => match not_whole(&told) {
                Some(why) => clap::Error::raw(ErrorKind::ValueValidation, of_option(&told, &why)),
                None => told.format(&mut command),
            },
        },
        (ErrorKind::UnknownArgument, _) => with_hint(told).format(&mut command),
        _ => told.format(&mut command),
    })
}

/// The error of a word in the wrong place, with a hint.
fn with_hint(mut told: clap::Error) -> clap::Error {
    let all: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    if let Some(ContextValue::String(unexpected)) = told.get(ContextKind::InvalidArg)
        && let Some(hint) = hint(unexpected, &all)
    {
        let hints = ContextValue::StyledStrs(vec![hint.into()]);
        told.insert(ContextKind::Suggested, hints);
    }
    told
}

/// What is wrong with a value, if it is not on the command line but in a variable.
fn of_variable(command: &clap::Command, told: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(value)) = told.get(ContextKind::InvalidValue) else {
        return None;
    };
    let Some(ContextValue::String(option)) = told.get(ContextKind::InvalidArg) else {
        return None;
    };
    // It has the placeholder behind it.
    let long = option.split(' ').next()?.strip_prefix("--")?;
    let arg = variables_of(command).find(|arg| arg.get_long() == Some(long))?;
    let is_given = |word: std::ffi::OsString| {
        let word = word.to_string_lossy();
        let word = word.strip_prefix("--").and_then(|it| it.strip_prefix(long));
        word.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    if std::env::args_os().any(is_given) {
        return None;
    }
    let why = not_whole(told).or_else(|| Some(std::error::Error::source(told)?.to_string()));
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    Some(format!(
        "the variable {} has the value '{value}'{why}; correct or unset it\n",
        arg.get_env()?.display()
    ))
}

/// What is wrong with a value that is no whole number. The standard library's words do not say what to write.
fn not_whole(told: &clap::Error) -> Option<String> {
    let why = std::error::Error::source(told)?.downcast_ref::<ParseIntError>()?;
    let is_negative = matches!(
        told.get(ContextKind::InvalidValue),
        Some(ContextValue::String(value)) if value.starts_with('-')
    );
    let why = match why.kind() {
        IntErrorKind::PosOverflow => "it is too large; write a smaller number",
        IntErrorKind::NegOverflow => "it is too small; write a larger number",
        _ if is_negative => "it must be a whole number, 0 or more",
        _ => "it must be a whole number, such as 10",
    };
    Some(why.to_owned())
}

/// The error of an option's value.
fn of_option(told: &clap::Error, why: &str) -> String {
    let text = |kind| match told.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let (value, option) = (
        text(ContextKind::InvalidValue),
        text(ContextKind::InvalidArg),
    );
    format!(
        "invalid value '{value}' for '{option}': {why}\n\nFor more information, try '--help'.\n"
    )
}

/// The options of a command and those below it that can be in a variable.
fn variables_of(command: &clap::Command) -> Box<dyn Iterator<Item = &clap::Arg> + '_> {
    let own = command
        .get_arguments()
        .filter(|arg| arg.get_env().is_some());
    Box::new(own.chain(command.get_subcommands().flat_map(variables_of)))
}

/// A variable that is empty is as one that is not set.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |arg: &clap::Arg| {
        let variable = arg.get_env().and_then(std::env::var_os);
        variable.is_some_and(|value| value.is_empty())
    };
    let command = command.mut_args(|arg| match is_empty(&arg) {
        true => arg.env(clap::builder::Resettable::Reset),
        false => arg,
    });
    command.mut_subcommands(without_empty_variables)
}

/// A negative number behind an option is its value: the option says what it takes.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| match arg.get_action().takes_values() {
        true if !arg.is_positional() => arg.allow_negative_numbers(true),
        _ => arg,
    });
    command.mut_subcommands(with_negative_numbers)
}

/// The arguments that are no text, and the variables for some that must be.
fn not_text(command: &clap::Command) -> Option<String> {
    let must_be_text = |arg: &&clap::Arg| arg.get_value_hint() != ValueHint::DirPath;
    let variables = variables_of(command).filter(must_be_text);
    let mut variables: Vec<_> = variables.filter_map(clap::Arg::get_env).collect();
    variables.sort_unstable();
    variables.dedup();
    let is_wrong = |name: &&std::ffi::OsStr| {
        std::env::var_os(name).is_some_and(|value| value.to_str().is_none())
    };
    let variables = variables.into_iter().filter(is_wrong);
    let variables = variables.map(|name| format!("the variable {}", name.display()));
    let arguments = std::env::args_os().skip(1);
    let arguments = arguments.filter(|arg| arg.to_str().is_none());
    let wrong: Vec<_> = variables
        .chain(arguments.map(|arg| format!("the argument {arg:?}")))
        .collect();
    (!wrong.is_empty()).then(|| wrong.join(" or "))
}

/// Raises the soft limit of open files to the hard one. The usual 1024 is for programs that use `select`; here each
/// directory of each task is a descriptor, and so is each connection.
fn allow_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // What the machine does not allow stays as it is.
    let _ = setrlimit(Resource::Nofile, limit);
}

fn run(cli: &Cli, printer: &Printer) -> CommandResult {
    // A node that stays says for itself what it logs.
    let is_client = !matches!(
        &cli.command,
        Command::Node {
            command: NodeCommand::Start(_)
        }
    );
    // A node may well have nobody whom it could tell where it listens.
    if is_client {
        stdio::keep_closed();
    }
    let _logging = (is_client && cli.global.verbose)
        .then(|| log::start(log::Filter::default(), log::Format::Text));
    match &cli.command {
        Command::Submit(submit) => submit::submit(submit, &cli.global, printer),
        Command::Run(run) => submit::run_script(run, &cli.global, printer),
        Command::New(project) => new::new(project, printer),
        Command::Stubs(stubs) => stubs::stubs(stubs, printer),
        Command::Mcp(options) => mcp::mcp(options, &cli.global, printer),
        Command::Node { command } => daemon::node(command, &cli.global, printer),
        Command::Dashboard(options) => dashboard::dashboard(options, &cli.global, printer),
        Command::Login(login) => login::login(login, &cli.global, printer),
        Command::Whoami { tenant } => things::clients::who_am_i(tenant, &cli.global, printer),
        Command::Status { scheduler, watch } => {
            things::status(*scheduler, *watch, &cli.global, printer)
        }
        Command::Top => things::top::top(&cli.global),
        Command::List(list) => things::list(list, &cli.global, printer),
        Command::Get(id) => things::get(id, &cli.global, printer),
        Command::Explain(id) => things::explain(id, &cli.global, printer),
        Command::Cancel(id) => things::cancel(id, &cli.global, printer),
        Command::Logs(logs) => things::logs(logs, &cli.global, printer),
        Command::Job { command } => things::jobs::job(command, &cli.global, printer),
        Command::Timeline(timeline) => things::timeline::timeline(timeline, &cli.global, printer),
        Command::Put(put) => things::objects::put(put, &cli.global, printer),
        Command::Object { command } => things::objects::object(command, &cli.global, printer),
        Command::Actor { command } => things::actors::actor(command, &cli.global, printer),
        Command::Group { command } => things::groups::group(command, &cli.global, printer),
        Command::Audit(audit) => things::audit::audit(audit, &cli.global, printer),
        Command::Client { command } => things::clients::client(command, &cli.global, printer),
        Command::Secret { command } => things::secrets::secret(command, &cli.global, printer),
        Command::Tenant { command } => things::tenants::tenant(command, &cli.global, printer),
        Command::Scheduling { command } => {
            things::scheduling::scheduling(command.as_ref(), &cli.global, printer)
        }
        Command::Serve(options) => serve::serve(options, &cli.global, printer),
        Command::Service { command } => things::services::service(command, &cli.global, printer),
        Command::Inspect(inspect) => inspect::inspect(inspect, printer),
        Command::Annotate(annotate) => annotate::annotate(annotate, printer),
        Command::Simulate(simulate) => simulate::simulate(simulate, &cli.global, printer),
        Command::Bench(bench) => bench::bench(bench, printer),
        Command::Doctor(options) => doctor::doctor(options, &cli.global, printer),
        Command::IdleNode(idle) => bench::idle_node(idle, printer),
        Command::CompileModule { task } => {
            std::process::exit(wasmrun_engine::compile_as_told(task))
        }
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "wasmrun", &mut text);
            printer.result(String::from_utf8_lossy(&text).trim_end())
        }
    }
}
