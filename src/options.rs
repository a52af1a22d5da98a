//! The options: from the command line, or else from `COLORS_*` variables. Checks each value,
//! whether the options go together, and whether a credential of systemd is left unused; opens no
//! file.

mod values;

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::Duration;

use clap::builder::{PathBufValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{
    Arg, ArgAction, ArgMatches, Command, CommandFactory as _, FromArgMatches as _, Parser,
    ValueEnum, ValueHint,
};
use log::LevelFilter;
pub(crate) use values::{BasePath, DataPlace, Endpoint, ServiceAddress};
use values::{
    parse_host, parse_mode, parse_origin, parse_size, parse_time, parse_url, parse_workers,
};

/// The last paragraph of the help.
const ENVIRONMENT: &str = "\
Each option but --check, --dump and --health can also be a variable: COLORS_ and its name, as in
COLORS_MAX_BODY=64K or COLORS_READ_ONLY=true; several values with commas. The option overrides it.";

/// The beginning of the name of every variable.
const PREFIX: &str = "COLORS_";

/// Variables in `/etc/default/colors` that only colors-backup.service reads.
const BACKUP_VARIABLES: [&str; 1] = ["COLORS_BACKUPS"];

/// Not refused: a copy for everybody may be what is wanted.
const OPEN_COPY: &str = "whoever reaches this copy may read the list, for which its writer asks a \
                         token: --private would prevent that";

/// Serves an ordered list of named colors over HTTP, as JSON.
#[derive(Debug, Parser)]
#[command(version = env!("BUILD_VERSION"), max_term_width = 100, after_help = ENVIRONMENT)]
#[command(mut_args = with_kind)]
pub(crate) struct Options {
    /// Or a port, or unix:PATH; repeatable
    #[arg(long, value_name = "ADDR:PORT", default_value = "localhost:8080", value_delimiter = ',')]
    #[arg(alias = "port")]
    pub(crate) listen: Vec<Endpoint>,

    /// Permissions of a unix socket's file, octal
    #[arg(long, value_name = "MODE", default_value = "0660", value_parser = parse_mode)]
    pub(crate) unix_mode: u32,

    /// Fills the list [default: ./seed/colors.json if there, or built in]
    #[arg(long, value_name = "FILE")]
    pub(crate) seed: Option<PathBuf>,

    /// SQLite FILE, or etcd://HOST:PORT,.../KEY, for many services
    #[arg(long, value_name = "FILE")]
    #[arg(value_parser = PathBufValueParser::new().try_map(DataPlace::parse))]
    pub(crate) data: Option<DataPlace>,

    /// USER:PASSWORD for etcd; read again whenever it is sent
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_user_file: Option<PathBuf>,

    /// Keep a copy of the list of the service there
    #[arg(long, value_name = "URL", value_parser = parse_url)]
    pub(crate) follow: Option<String>,

    /// Token for that service; read again whenever it is sent
    #[arg(long, value_name = "FILE", requires = "follow")]
    pub(crate) follow_token_file: Option<PathBuf>,

    /// Path that everything is served below, as in /api
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true)]
    #[arg(value_parser = BasePath::parse)]
    pub(crate) base_path: BasePath,

    /// Event loops, one thread each [default: one per processor but one]
    #[arg(long, value_name = "N", value_parser = parse_workers)]
    pub(crate) workers: Option<usize>,

    /// Longest content of a request, at most 16 MiB
    #[arg(long, value_name = "BYTES", default_value = "1MiB", value_parser = parse_size)]
    pub(crate) max_body: usize,

    /// Longest wait for a request, or for a client to read
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_time)]
    pub(crate) request_timeout: Duration,

    /// Longest time between two requests on a connection
    #[arg(long, value_name = "TIME", default_value = "75s", value_parser = parse_time)]
    pub(crate) keep_alive: Duration,

    /// Allow only reads: clients change nothing
    #[arg(long, value_name = "BOOL", value_parser = bool_parser())]
    pub(crate) read_only: bool,

    /// Changes need a bearer token of this file; read again on SIGHUP
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// Reads of colors and metrics need a token, too
    #[arg(long, value_name = "BOOL", value_parser = bool_parser())]
    pub(crate) private: bool,

    /// Let the web pages of this origin use it; repeatable
    #[arg(long, value_name = "ORIGIN", value_delimiter = ',', value_parser = parse_origin)]
    pub(crate) allow_origin: Vec<String>,

    /// Host name to answer to, besides localhost; repeatable
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = parse_host)]
    pub(crate) allow_host: Vec<String>,

    /// Least severe to log: off, error, warn, info, debug
    #[arg(long, value_name = "LEVEL", default_value = "info", ignore_case = true)]
    #[arg(hide_possible_values = true, value_parser = level_parser())]
    pub(crate) log_level: LevelFilter,

    /// Log every request, or =changes: those that changed the list
    #[arg(long, value_name = "WHICH")]
    pub(crate) access_log: AccessLog,

    /// Check options and files; listens nowhere, changes no list
    #[arg(long)]
    pub(crate) check: bool,

    /// Print the list of --data as JSON, in use or not; recovers it first
    #[arg(long, conflicts_with = "check", requires = "data")]
    pub(crate) dump: bool,

    /// Ask the service there, or else at --listen, whether all is well
    #[arg(long, value_name = "URL", value_parser = ServiceAddress::parse)]
    #[arg(conflicts_with_all = ["check", "dump"])]
    pub(crate) health: Option<Option<ServiceAddress>>,

    /// Logged once the service listens.
    #[arg(skip)]
    pub(crate) warnings: Vec<String>,
}

impl Options {
    /// Reads the command line and the environment. Ends the process after `--help` and `--version`,
    /// and, with exit code 2, on a mistake.
    pub(crate) fn read() -> Self {
        Self::try_read().unwrap_or_else(|error| error.exit())
    }

    fn try_read() -> clap::error::Result<Self> {
        let mut command = Self::command().mut_args(with_variable);
        let matches = command
            .try_get_matches_from_mut(env::args_os())
            .map_err(|error| with_tip(name_source(&mut command, error)))?;
        let mut options =
            Self { warnings: warnings(&command), ..Self::from_arg_matches(&matches)? };
        // On any address: what proxies reach, others may reach.
        if options.follow_token_file.is_some() && !options.private {
            options.warnings.push(OPEN_COPY.to_owned());
        }
        if let Some(DataPlace::Etcd(place)) = &options.data
            && options.etcd_user_file.is_some()
            && let Some(member) = place.elsewhere()
        {
            options.warnings.push(format!(
                "the password for etcd goes to {member} in clear: name members of this host"
            ));
        }
        let contradiction = || {
            let (id, reason) = options.contradiction()?;
            Some(format!("{} {reason}", given_name(&command, &matches, id)))
        };
        match options.unused_credential().or_else(contradiction) {
            None => Ok(options),
            Some(reason) => Err(command.error(ErrorKind::ArgumentConflict, reason)),
        }
    }

    /// What to do about a credential `tokens` (systemd.exec(5)) while no token file is named. That
    /// it is there says that changes are to need a token. The line that names it may be forgotten,
    /// or use `%d`: systemd before 251 ignores such a line, and starts the service.
    fn unused_credential(&self) -> Option<String> {
        // Neither `--health` nor `--dump` serves anybody.
        if self.token_file.is_some() || self.health.is_some() || self.dump {
            return None;
        }
        let file = Path::new(&env::var_os("CREDENTIALS_DIRECTORY")?).join("tokens");
        // What cannot be looked for may be there, and so may what a link leads to.
        let is_absent = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        let is_there = !file.symlink_metadata().is_err_and(is_absent);
        is_there.then(|| {
            format!(
                "the unit has the credential \"tokens\", but no token file is named, so no change \
                 would need a token: add the line Environment=COLORS_TOKEN_FILE={} to the unit",
                file.display()
            )
        })
    }

    /// An option that the others leave without effect or make harmful, and why. Looks at the parsed
    /// values: many words and two sources mean the same.
    fn contradiction(&self) -> Option<(&'static str, &'static str)> {
        // In a container, --health does not have the options of the service, but its variables.
        if self.health.is_some() {
            return None;
        }
        if self.private && self.token_file.is_none() {
            return Some(("private", "protects nothing without --token-file"));
        }
        if self.follow.is_some() && matches!(self.data, Some(DataPlace::Etcd(_))) {
            let reason = "would replace the list in etcd, which other services change: name a FILE \
                          for the copy";
            return Some(("follow", reason));
        }
        if self.etcd_user_file.is_some() && !matches!(self.data, Some(DataPlace::Etcd(_))) {
            return Some(("etcd_user_file", "has no use without --data etcd://HOST:PORT/KEY"));
        }
        None
    }

    /// Whether SIGHUP is handled; otherwise it ends the process. The files of
    /// `--follow-token-file` and `--etcd-user-file` are read when they are sent, and need no
    /// signal. But whoever changes them may send one.
    pub(crate) fn handles_hangup(&self) -> bool {
        self.token_file.is_some()
            || self.follow_token_file.is_some()
            || self.etcd_user_file.is_some()
    }

    pub(crate) fn worker_count(&self) -> usize {
        // A worker never sleeps under full load. Without a processor for the kernel's network, the
        // writer, long answers and other programs, the system sets a worker aside for some
        // milliseconds again and again, and all its connections wait.
        let of_system =
            || available_parallelism().map_or(1, |count| (count.get() - 1).clamp(1, 256));
        self.workers.unwrap_or_else(of_system)
    }
}

/// Which requests are logged: `--access-log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccessLog {
    // Those that have changed the list.
    Changes,
    // The words that clap takes for a boolean, as in `bool_parser`.
    #[value(name = "true", aliases = ["yes", "on", "1", "y", "t"])]
    All,
    #[value(name = "false", aliases = ["no", "off", "0", "n", "f"])]
    None,
}

/// The options of an empty command line, whatever the environment has.
#[cfg(any(test, fuzzing))]
impl Default for Options {
    fn default() -> Self {
        Self::parse_from(["colors"])
    }
}

/// Adds what options with the same kind of value have in common.
fn with_kind(arg: Arg) -> Arg {
    let kind = arg.get_value_names().map_or(String::new(), |names| names[0].to_string());
    match kind.as_str() {
        "FILE" => arg.value_hint(ValueHint::FilePath),
        "NAME" => arg.value_hint(ValueHint::Hostname),
        "ADDR:PORT" | "MODE" | "PATH" | "ORIGIN" | "URL" => arg.value_hint(ValueHint::Other),
        // Takes -1 for a value, not for an option: the message then says which values there are.
        "N" | "BYTES" | "TIME" => arg.value_hint(ValueHint::Other).allow_negative_numbers(true),
        // --read-only is the same as --read-only=true.
        "BOOL" | "WHICH" => arg
            .action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .ignore_case(true)
            .required(false)
            .default_value("false")
            .default_missing_value("true")
            .hide_default_value(true)
            .hide_possible_values(true),
        _ => arg,
    }
}

/// The variables of the options that protect the list.
const PROTECTING: [&str; 3] = ["COLORS_TOKEN_FILE", "COLORS_PRIVATE", "COLORS_READ_ONLY"];

/// Lets an option read its variable. An empty variable counts as not set: unit files and container
/// tools set it to nothing to unset it. That of an option that protects is a mistake: it may have
/// been set from another one that is missing, and the list would be open to all.
fn with_variable(arg: Arg) -> Arg {
    let is_set = |name: &String| {
        let protects = PROTECTING.contains(&name.as_str());
        env::var_os(name).is_some_and(|value| protects || !value.is_empty())
    };
    match variable_of(&arg).filter(is_set) {
        Some(name) => arg.env(name),
        None => arg,
    }
}

/// Has an error about a value name what was given: a variable, or `--port`. Clap names the option.
fn name_source(command: &mut Command, mut error: clap::Error) -> clap::Error {
    let option = |error: &clap::Error| error.get(ContextKind::InvalidArg).map(ToString::to_string);
    // Clap reads variables after the command line. So a mistake there is found without them, too.
    let alone = Options::command().try_get_matches_from(env::args_os()).err();
    let named = option(&error);
    if error.get(ContextKind::InvalidValue).is_none() {
        return error;
    }
    let is_it = |arg: &&Arg| named.as_ref() == Some(&arg.to_string());
    let is_given =
        |name: &[u8]| env::args_os().any(|given| given.as_encoded_bytes().starts_with(name));
    let name = match command.get_arguments().find(is_it) {
        Some(arg) if alone.as_ref().and_then(option) != named => variable_of(arg),
        Some(arg) if arg.get_id() == "listen" && is_given(b"--port") && !is_given(b"--listen") => {
            Some("--port".to_owned())
        }
        _ => None,
    };
    let Some(name) = name else { return error };
    if env::var_os(&name).is_some_and(|value| value.is_empty()) {
        let reason = format!(
            "the variable {name} is empty: give it a value, or remove the line that sets it"
        );
        return command.error(ErrorKind::InvalidValue, reason);
    }
    error.insert(ContextKind::InvalidArg, ContextValue::String(name));
    error
}

/// Has the error about an argument that belongs to no option, such as a file or `-p`, say which
/// options may have been meant.
fn with_tip(mut error: clap::Error) -> clap::Error {
    let argument = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
    if error.kind() == ErrorKind::UnknownArgument && !argument.starts_with("--") {
        let tip = "give options by name, as --seed FILE or --listen PORT";
        let tips = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

/// The option with this id or, if its value is that of its variable, the variable.
fn given_name(command: &Command, matches: &ArgMatches, id: &str) -> String {
    let is_variable = matches.value_source(id) == Some(ValueSource::EnvVariable);
    let arg = command.get_arguments().find(|arg| arg.get_id() == id);
    let variable = arg.and_then(variable_of).filter(|_| is_variable);
    variable.unwrap_or_else(|| format!("--{}", id.replace('_', "-")))
}

/// Warnings about variables that do nothing.
fn warnings(command: &Command) -> Vec<String> {
    let known: Vec<String> = command.get_arguments().filter_map(variable_of).collect();
    let is_ours = |name: &str| name.starts_with(PREFIX) && !BACKUP_VARIABLES.contains(&name);
    let mut warnings = Vec::new();
    for (name, value) in env::vars_os() {
        let Some(name) = name.to_str().filter(|name| is_ours(name)) else { continue };
        if value.is_empty() && PROTECTING.contains(&name) {
            // An option overrides it: without one, it is a mistake (`name_source`).
            continue;
        }
        if value.is_empty() {
            warnings.push(format!("the variable {name} is empty, which is the same as not set"));
        } else if !known.iter().any(|known| known == name) {
            warnings.push(format!("the variable {name} is unknown and does nothing"));
        }
    }
    // The environment has no fixed order.
    warnings.sort_unstable();
    warnings
}

/// The variable of an option. `None` for what does not tell how to serve, such as `--check`.
fn variable_of(arg: &Arg) -> Option<String> {
    let is_setting = arg.get_action().takes_values() && arg.get_id() != "health";
    is_setting.then(|| format!("{PREFIX}{}", arg.get_id().as_str().to_ascii_uppercase()))
}

fn bool_parser() -> impl TypedValueParser<Value = bool> {
    // The words that clap takes for a boolean. The errors of its own parser do not list them.
    let yes = PossibleValue::new("true").aliases(["yes", "on", "1", "y", "t"]);
    let no = PossibleValue::new("false").aliases(["no", "off", "0", "n", "f"]);
    PossibleValuesParser::new([yes.clone(), no]).map(move |word| yes.matches(&word, true))
}

fn level_parser() -> impl TypedValueParser<Value = LevelFilter> {
    PossibleValuesParser::new(["off", "error", "warn", "info", "debug"])
        .map(|level| level.parse().expect("each of them is a level"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Options::command().debug_assert();
    }

    #[test]
    fn the_help_fits_100_columns() {
        let help = Options::command().render_help().to_string();
        assert!(help.lines().all(|line| line.len() <= 100), "{help}");
    }
}
