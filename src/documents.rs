//! The man page and the shells' completions, made from the definition of the command line. A test fails when those in the tree are stale.

use std::fs;
use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Args;

/// Has the test write the files instead of comparing them: `COLORS_WRITE_DOCUMENTS=1 cargo test documents`.
const WRITE: &str = "COLORS_WRITE_DOCUMENTS";

/// What the man page says beyond the options, after them; in man(7)'s language.
const SECTIONS: &str = r##".SH ENVIRONMENT
Each option can be given as a variable, too: COLORS_ and its name in capitals, as in COLORS_MAX_BODY=1024 or COLORS_READ_ONLY=true.
Several values are separated by commas. The command line wins over the environment.
.TP
\fBLISTEN_FDS\fR, \fBLISTEN_PID\fR
Listening sockets from the parent process, see \fBsd_listen_fds\fR(3). They are used instead of \fB\-\-listen\fR.
.TP
\fBNOTIFY_SOCKET\fR, \fBWATCHDOG_USEC\fR
Where and how often the service manager is told that all is well, see \fBsd_notify\fR(3).
.TP
\fBJOURNAL_STREAM\fR
When it names standard error, log lines begin with a priority and have no time, see \fBsd\-daemon\fR(3).
.SH "EXIT STATUS"
.TP
\fB0\fR
after SIGTERM or SIGINT, which finish what is under way within 5 seconds
.TP
\fB1\fR
when the service cannot start or go on, with one line that says why, or after a second signal
.TP
\fB2\fR
for a mistake on the command line
.SH SIGNALS
.TP
\fBSIGTERM\fR, \fBSIGINT\fR
End the service; a second one ends it at once.
.TP
\fBSIGHUP\fR
With \fB\-\-token\-file\fR, reads the tokens again.
.SH FILES
.TP
\fI/etc/default/colors\fR
Variables for \fBcolors.service\fR.
.SH EXAMPLES
.nf
curl http://127.0.0.1:8080/colors/red
curl \-\-json '{"name":"ink","value":"#191970"}' http://127.0.0.1:8080/colors
curl \-\-unix\-socket /run/colors/colors.sock http://localhost/colors
.fi
.SH "SEE ALSO"
\fBcurl\fR(1), \fBsystemctl\fR(1), \fBsystemd.socket\fR(5)
"##;

/// The man page.
fn man_page() -> Vec<u8> {
    let man = Man::new(Args::command()).section("1");
    let mut page = Vec::new();
    man.render_title(&mut page).unwrap();
    man.render_name_section(&mut page).unwrap();
    man.render_synopsis_section(&mut page).unwrap();
    man.render_description_section(&mut page).unwrap();
    man.render_options_section(&mut page).unwrap();
    page.extend_from_slice(SECTIONS.as_bytes());
    page
}

/// What completes the program's options in a shell.
fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "colors", &mut script);
    script
}

/// Compares a file of the tree with what it has to be, or makes it that.
#[track_caller]
fn check(file: &str, expected: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, expected).unwrap();
    }
    let is_current = fs::read(&path).is_ok_and(|content| content == expected);
    assert!(is_current, "{file} is stale: {WRITE}=1 cargo test documents");
}

#[test]
fn the_man_page_is_that_of_the_options() {
    check("man/colors.1", &man_page());
}

#[test]
fn the_completions_are_those_of_the_options() {
    check("completions/colors.bash", &completions(Shell::Bash));
    check("completions/_colors", &completions(Shell::Zsh));
    check("completions/colors.fish", &completions(Shell::Fish));
}
