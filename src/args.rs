//! The command line, with the `COLORS_*` environment. Checks values, and those that do not go
//! together; opens nothing.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{BoolishValueParser, PossibleValuesParser, TypedValueParser as _};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgAction, CommandFactory as _, FromArgMatches as _, Parser, ValueHint};
use log::LevelFilter;

use crate::environment;
use crate::logging::AccessLog;
use crate::server::Endpoint;
use crate::service::{BasePath, parse_host, parse_origin};

/// Closes the help.
const ENVIRONMENT: &str = "\
Each option but --check and --dump can also be a variable: COLORS_ and its name, as in
COLORS_MAX_BODY=64K or COLORS_READ_ONLY=true; several values with commas. The option overrides it.";

const LEVELS: [&str; 5] = ["off", "error", "warn", "info", "debug"];

/// Serves an ordered list of named colors over HTTP, as JSON.
#[derive(Clone, Debug, Parser)]
#[command(version = env!("BUILD_VERSION"), max_term_width = 100, after_help = ENVIRONMENT)]
pub(crate) struct Args {
    /// Address, port, or unix:PATH; repeatable
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080", value_delimiter = ',', value_hint = ValueHint::Other)]
    pub(crate) listen: Vec<Endpoint>,

    /// Permissions of a unix socket's file, octal
    #[arg(long, value_name = "MODE", default_value = "0660", value_parser = parse_mode, value_hint = ValueHint::Other)]
    pub(crate) unix_mode: u32,

    /// Fills the list [default: ./seed/colors.json if there, else built in]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) seed: Option<PathBuf>,

    /// SQLite database of the list: a change is saved, then answered
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) data: Option<PathBuf>,

    /// Path that everything is served below, as in /api
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true, value_parser = BasePath::parse, value_hint = ValueHint::Other)]
    pub(crate) base_path: BasePath,

    /// Event loops, one thread each [default: as many as processors, >= 2]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_workers, value_hint = ValueHint::Other)]
    pub(crate) workers: Option<u16>,

    /// Longest content of a request, at most 16 MiB
    #[arg(long, value_name = "BYTES", default_value = "1MiB", allow_negative_numbers = true, value_parser = parse_size, value_hint = ValueHint::Other)]
    pub(crate) max_body: usize,

    /// Longest wait for a request, or for a client to read
    #[arg(long, value_name = "TIME", default_value = "30s", allow_negative_numbers = true, value_parser = parse_time, value_hint = ValueHint::Other)]
    pub(crate) request_timeout: Duration,

    /// Longest time between two requests on a connection
    #[arg(long, value_name = "TIME", default_value = "75s", allow_negative_numbers = true, value_parser = parse_time, value_hint = ValueHint::Other)]
    pub(crate) keep_alive: Duration,

    /// Allow only reads; with --data, it follows FILE, read-only
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", hide_default_value = true, hide_possible_values = true, value_parser = BoolishValueParser::new())]
    pub(crate) read_only: bool,

    /// Changes need a bearer token of this file; read again on SIGHUP
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,

    /// Reads of colors and metrics need a token, too
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", hide_default_value = true, hide_possible_values = true, value_parser = BoolishValueParser::new())]
    pub(crate) private: bool,

    /// Let the web pages of this origin use it; repeatable
    #[arg(long, value_name = "ORIGIN", value_delimiter = ',', value_parser = parse_origin, value_hint = ValueHint::Other)]
    pub(crate) allow_origin: Vec<String>,

    /// Host name to answer to, besides localhost; repeatable
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = parse_host, value_hint = ValueHint::Hostname)]
    pub(crate) allow_host: Vec<String>,

    /// Log
    #[arg(long, value_name = "LEVEL", default_value = "info", ignore_case = true,
          value_parser = PossibleValuesParser::new(LEVELS).map(|level| level.parse::<LevelFilter>().expect("each of them is one")))]
    pub(crate) log_level: LevelFilter,

    /// Log every request, or =changes: those that changed the list
    #[arg(long, value_name = "WHICH", action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value = "false",
          default_missing_value = "true", hide_default_value = true, hide_possible_values = true, ignore_case = true)]
    pub(crate) access_log: AccessLog,

    /// Say whether a start would succeed; listens nowhere, writes nothing
    #[arg(long)]
    pub(crate) check: bool,

    /// Print the list that --data keeps, as JSON; also while it is in use
    #[arg(long, conflicts_with = "check")]
    pub(crate) dump: bool,

    /// What sets `listen`, the option or its variable, if it is set.
    #[arg(skip)]
    pub(crate) listen_name: Option<String>,

    /// What to log once the service listens.
    #[arg(skip)]
    pub(crate) warnings: Vec<String>,
}

impl Args {
    /// Reads the command line and the environment. Exits after `--help`, `--version`, or a mistake.
    pub(crate) fn read() -> Self {
        Self::of(std::env::args_os().collect(), std::env::vars_os())
            .unwrap_or_else(|error| error.exit())
    }

    fn of(
        line: Vec<OsString>,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> clap::error::Result<Self> {
        let mut command = Self::command();
        let given = environment::parse(&mut command, &line)?;
        let (options, warnings) = environment::options(&mut command, &given, variables)?;
        let (program, line) = line.split_at(line.len().min(1));
        let matches =
            command.try_get_matches_from_mut(program.iter().chain(&options).chain(line))?;
        let mut args = Self::from_arg_matches(&matches)?;
        args.warnings = warnings;
        // a message names what the operator set: the option or its variable
        let is_on_line = |id: &str| given.value_source(id) == Some(ValueSource::CommandLine);
        let name = |id: &str| environment::name(id, is_on_line(id));
        args.listen_name = (matches.value_source("listen") == Some(ValueSource::CommandLine))
            .then(|| name("listen"));
        if let Some(clash) = args
            .listen
            .iter()
            .enumerate()
            .find_map(|(at, one)| args.listen[..at].iter().find_map(|two| one.clash(two)))
        {
            return Err(
                command.error(ErrorKind::ArgumentConflict, format!("{}: {clash}", name("listen")))
            );
        }
        if args.private && args.token_file.is_none() {
            let message = format!(
                "{} needs {}",
                name("private"),
                environment::name("token_file", is_on_line("private"))
            );
            return Err(command.error(ErrorKind::MissingRequiredArgument, message));
        }
        // not for clap, whose first look is at the command line alone
        if args.dump && args.data.is_none() {
            return Err(command.error(ErrorKind::MissingRequiredArgument, "--dump needs --data"));
        }
        if args.access_log != AccessLog::None && args.log_level < LevelFilter::Info {
            let level = args.log_level.as_str().to_ascii_lowercase();
            let (access_log, log_level) = (name("access_log"), name("log_level"));
            let message =
                format!("{access_log} logs nothing at {log_level} {level}: it needs info or debug");
            return Err(command.error(ErrorKind::ArgumentConflict, message));
        }
        Ok(args)
    }

    pub(crate) fn worker_count(&self) -> usize {
        // at least two, so that one long answer does not delay all other clients
        let of_system = || {
            std::thread::available_parallelism()
                .map_or(2, |processors| processors.get().clamp(2, 256))
        };
        self.workers.map_or_else(of_system, usize::from)
    }
}

fn parse_workers(text: &str) -> Result<u16, &'static str> {
    text.parse()
        .ok()
        .filter(|workers| (1..=256).contains(workers))
        .ok_or("give a number from 1 to 256")
}

/// Parses a number of bytes, from 64 to 16 MiB; K and M are binary.
fn parse_size(text: &str) -> Result<usize, String> {
    let (number, unit) = split_unit(text);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => Some(1),
        "k" | "kib" => Some(1024),
        "m" | "mib" => Some(1024 * 1024),
        _ => None,
    };
    let bytes = number
        .parse::<usize>()
        .ok()
        .zip(factor)
        .and_then(|(number, factor)| number.checked_mul(factor));
    let bytes = bytes.filter(|bytes| (64..=16 * 1024 * 1024).contains(bytes));
    bytes.ok_or_else(|| "give a size from 64 bytes to 16 MiB, as in 65536, 64K or 1MiB".to_owned())
}

/// Parses a time from 100 ms to a day, in seconds if there is no unit.
fn parse_time(text: &str) -> Result<Duration, String> {
    let (number, unit) = split_unit(text);
    let factor = match unit {
        "ms" => Some(0.001),
        "" | "s" => Some(1.0),
        "m" | "min" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    };
    let seconds = number.parse::<f64>().ok().zip(factor).map(|(number, factor)| number * factor);
    let seconds = seconds.filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "give a time from 100ms to 24h, as in 30, 30s, 500ms or 2m".to_owned())
}

/// Splits `64K` into `64` and `K`.
fn split_unit(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()))
}

/// Parses the permissions of a file, from 0 to 777 in octal.
fn parse_mode(text: &str) -> Result<u32, String> {
    let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let mode =
        digits.and_then(|digits| u32::from_str_radix(digits, 8).ok()).filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "give an octal number from 0 to 777, as in 0660".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn times_are_within_a_day() {
        for (text, milliseconds) in [
            ("5", 5000),
            ("0.25", 250),
            ("30s", 30_000),
            ("500ms", 500),
            ("2m", 120_000),
            ("1.5h", 5_400_000),
        ] {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["0", "-1", "NaN", "inf", "86401", "5 s", "s", "99ms", "1d", ""] {
            assert!(parse_time(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn sizes_are_from_64_bytes_to_16_mib() {
        for (text, bytes) in [
            ("64", 64),
            ("64B", 64),
            ("64K", 65_536),
            ("64k", 65_536),
            ("64KiB", 65_536),
            ("16MiB", 16_777_216),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in [
            "63",
            "16777217",
            "17M",
            "1G",
            "1.5K",
            "-64",
            "K",
            "64 K",
            "64KB",
            "99999999999999999999",
            "",
        ] {
            assert!(parse_size(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!(parse_mode("0660"), Ok(0o660));
        assert_eq!(parse_mode("7"), Ok(0o7));
        for text in ["1000", "8", "+7", "-1", "rw", ""] {
            assert!(parse_mode(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_help_fits_100_columns() {
        let help = Args::command().render_help().to_string();
        assert!(help.lines().all(|line| line.len() <= 100), "{help}");
    }
}
