//! The command line and the `COLORS_*` environment. Checks each value by itself and opens nothing.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser};

use crate::server::Endpoint;
use crate::service::{BasePath, parse_host, parse_origin};

/// Closes the help.
const ENVIRONMENT: &str = "\
Each option can be given in the environment, too: COLORS_ and its name, as in COLORS_MAX_BODY=1024
or COLORS_READ_ONLY=true; several values with commas. The command line wins over the environment.";

/// Serves an ordered list of named colors over HTTP, as JSON.
#[derive(Clone, Debug, Parser)]
#[command(version, max_term_width = 100, after_help = ENVIRONMENT)]
pub(crate) struct Args {
    /// Address, or unix:PATH; repeatable
    #[arg(long, env = "COLORS_LISTEN", value_name = "ADDR:PORT", default_value = "127.0.0.1:8080", value_delimiter = ',', hide_env = true)]
    pub(crate) listen: Vec<Endpoint>,

    /// Permissions of a unix socket's file, octal
    #[arg(long, env = "COLORS_UNIX_MODE", value_name = "MODE", default_value = "0660", value_parser = mode, hide_env = true)]
    pub(crate) unix_mode: u32,

    /// Fills the list; never written
    #[arg(long, env = "COLORS_SEED", value_name = "FILE", default_value = "seed/colors.json", hide_env = true)]
    pub(crate) seed: PathBuf,

    /// Keeps the list: each change is saved here before its answer
    #[arg(long, env = "COLORS_DATA", value_name = "FILE", hide_env = true)]
    pub(crate) data: Option<PathBuf>,

    /// Path that everything is served below, as in /api
    #[arg(long, env = "COLORS_BASE_PATH", value_name = "PATH", default_value = "", hide_default_value = true, value_parser = BasePath::parse, hide_env = true)]
    pub(crate) base_path: BasePath,

    /// Event loops, a thread each; default one per processor, at least 2
    #[arg(long, env = "COLORS_WORKERS", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256), hide_env = true)]
    pub(crate) workers: Option<u16>,

    /// Longest content of a request, in bytes
    #[arg(long, env = "COLORS_MAX_BODY", value_name = "BYTES", default_value = "65536", value_parser = clap::value_parser!(u32).range(64..=64 << 20), hide_env = true)]
    pub(crate) max_body: u32,

    /// For a request to arrive or an answer to be taken
    #[arg(long, env = "COLORS_REQUEST_TIMEOUT", value_name = "SECONDS", default_value = "30", value_parser = seconds, hide_env = true)]
    pub(crate) request_timeout: Duration,

    /// Between two requests on a connection
    #[arg(long, env = "COLORS_KEEP_ALIVE", value_name = "SECONDS", default_value = "5", value_parser = seconds, hide_env = true)]
    pub(crate) keep_alive: Duration,

    /// Allow only reads: POST, PUT and DELETE answer 405
    #[arg(long, env = "COLORS_READ_ONLY", hide_env = true, value_parser = BoolishValueParser::new())]
    pub(crate) read_only: bool,

    /// Changes need a bearer token of this file; read again on SIGHUP
    #[arg(long, env = "COLORS_TOKEN_FILE", value_name = "FILE", hide_env = true)]
    pub(crate) token_file: Option<PathBuf>,

    /// Reads of colors need a token, too
    #[arg(long, env = "COLORS_PRIVATE", hide_env = true, value_parser = BoolishValueParser::new())]
    pub(crate) private: bool,

    /// Let the web pages of this origin use it; repeatable
    #[arg(long, env = "COLORS_ALLOW_ORIGIN", value_name = "ORIGIN", value_delimiter = ',', value_parser = parse_origin, hide_env = true)]
    pub(crate) allow_origin: Vec<String>,

    /// Answer to this host name on loopback, too; repeatable
    #[arg(long, env = "COLORS_ALLOW_HOST", value_name = "NAME", value_delimiter = ',', value_parser = parse_host, hide_env = true)]
    pub(crate) allow_host: Vec<String>,

    /// One of off, error, warn, info, debug
    #[arg(long, env = "COLORS_LOG_LEVEL", value_name = "LEVEL", default_value = "info", hide_env = true)]
    pub(crate) log_level: log::LevelFilter,

    /// Log a line for every request
    #[arg(long, env = "COLORS_ACCESS_LOG", hide_env = true, value_parser = BoolishValueParser::new())]
    pub(crate) access_log: bool,
}

impl Args {
    /// Parses the command line and the environment; ends the process with exit code 2 at a mistake.
    pub(crate) fn parse_or_exit() -> Self {
        let args = Self::parse();
        // not clap's "requires", which takes COLORS_PRIVATE=false for a wish to be private
        if args.private && args.token_file.is_none() {
            Self::command().error(ErrorKind::MissingRequiredArgument, "--private needs --token-file").exit();
        }
        args
    }

    /// How many event loops to run.
    pub(crate) fn workers(&self) -> usize {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        self.workers.map_or_else(|| processors().max(2), usize::from)
    }
}

/// Parses a time in seconds, fractions allowed, from 0.1 to a day.
fn seconds(text: &str) -> Result<Duration, String> {
    let range = 0.1..=86_400.0;
    let seconds: f64 = text.parse().ok().filter(|seconds| range.contains(seconds)).ok_or("give a number of seconds from 0.1 to 86400")?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Parses the permissions of a file, from 0 to 777 in octal.
fn mode(text: &str) -> Result<u32, String> {
    let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let mode = digits.and_then(|digits| u32::from_str_radix(digits, 8).ok()).filter(|mode| *mode <= 0o777);
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
    fn times_are_seconds_within_a_day() {
        assert_eq!(seconds("5"), Ok(Duration::from_secs(5)));
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for text in ["0", "-1", "NaN", "inf", "86401", "5s", ""] {
            assert!(seconds(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!(mode("0660"), Ok(0o660));
        assert_eq!(mode("7"), Ok(0o7));
        for text in ["1000", "8", "+7", "-1", "rw", ""] {
            assert!(mode(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_help_fits_one_screen() {
        let help = Args::command().render_help().to_string();
        assert!(help.lines().count() <= 40, "{help}");
        assert!(help.lines().all(|line| line.len() <= 100), "{help}");
    }
}
