//! Options from `COLORS_*` variables. The command line has precedence; clap checks the values of
//! both.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

const PREFIX: &str = "COLORS_";

/// Options that no variable sets.
const LINE_ONLY: [&str; 4] = ["help", "version", "check", "dump"];

/// Variables in `/etc/default/colors` that others read: colors-backup.service.
const OF_OTHERS: [&str; 1] = ["COLORS_BACKUPS"];

/// Parses a command line. For `--port`, which many programs have, the error suggests `--listen`.
pub(crate) fn parse<'a>(
    command: &mut Command,
    line: impl IntoIterator<Item = &'a OsString>,
) -> clap::error::Result<ArgMatches> {
    command.try_get_matches_from_mut(line).map_err(|mut error| {
        if matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(option)) if option == "--port" || option == "-p") {
            error.insert(ContextKind::SuggestedArg, ContextValue::String("--listen".to_owned()));
            error.remove(ContextKind::Usage);
        }
        error
    })
}

/// Returns the variables as options, except those that the command line sets, and warnings about
/// unknown variables. The error for an invalid value names the variable.
pub(crate) fn options(
    command: &mut Command,
    line: &ArgMatches,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> clap::error::Result<(Vec<OsString>, Vec<String>)> {
    let (mut options, mut warnings) = (Vec::new(), Vec::new());
    for (name, value) in variables {
        let Some(key) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        if OF_OTHERS.iter().any(|known| name == *known) {
            continue;
        }
        let id = key.to_ascii_lowercase();
        // an empty variable is how service managers and containers say that there is none
        if value.is_empty() {
            let name = name.display();
            warnings.push(format!("the variable {name} is empty, which is the same as not set"));
            continue;
        }
        let is_known = !LINE_ONLY.contains(&id.as_str())
            && command.get_arguments().any(|option| option.get_id() == id.as_str());
        if !is_known || name != variable(&id).as_str() {
            let hint = near(command, &id)
                .map_or_else(String::new, |near| format!("; did you mean {near}?"));
            warnings
                .push(format!("the variable {} is unknown and does nothing{hint}", name.display()));
        } else if line.value_source(&id) != Some(ValueSource::CommandLine) {
            let mut option = OsString::from(format!("{}=", self::name(&id, true)));
            option.push(&value);
            if let Err(mut error) = parse(command, &[OsString::from("colors"), option.clone()]) {
                if error.kind() == ErrorKind::InvalidUtf8 {
                    return Err(command.error(
                        ErrorKind::InvalidUtf8,
                        format!("the value of {} is not UTF-8", variable(&id)),
                    ));
                }
                error.insert(ContextKind::InvalidArg, ContextValue::String(variable(&id)));
                return Err(error);
            }
            options.push(option);
        }
    }
    // the environment has no order of its own
    warnings.sort_unstable();
    Ok((options, warnings))
}

/// The name of an option on the command line, or in the environment.
pub(crate) fn name(id: &str, on_line: bool) -> String {
    if on_line { format!("--{}", id.replace('_', "-")) } else { variable(id) }
}

fn variable(id: &str) -> String {
    format!("{PREFIX}{}", id.replace('-', "_").to_ascii_uppercase())
}

/// The variable of the option that clap suggests for a name like this one.
fn near(command: &mut Command, id: &str) -> Option<String> {
    let error = parse(command, &["colors".into(), name(id, true).into()]).err()?;
    match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(option)) if error.kind() == ErrorKind::UnknownArgument => {
            let id = option.trim_start_matches('-');
            (!LINE_ONLY.contains(&id)).then(|| variable(id))
        }
        _ => None,
    }
}
