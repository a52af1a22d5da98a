//! Which servers there are. Knows nothing of how they are started.

use std::fmt;

use clap::ValueEnum;

use crate::workload::Workload;

/// A server to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// The product; always measured, so naming it adds nothing.
    Colors,
    /// The same API on axum.
    Axum,
    /// The same API on actix-web.
    Actix,
    /// The same bytes as static files.
    Nginx,
    /// The last json-server of the line that most people have.
    #[value(name = "json-server-0")]
    JsonServer0,
    /// The newest json-server.
    #[value(name = "json-server-1")]
    JsonServer1,
}

impl Kind {
    /// All of them, in the order of the table.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 6] = [Self::Colors, Self::Axum, Self::Actix, Self::Nginx, Self::JsonServer0, Self::JsonServer1];

    /// Whether it can be asked this at all: static files only read.
    pub(crate) fn can(self, workload: Workload) -> bool {
        self != Self::Nginx || matches!(workload, Workload::ReadOne | Workload::ReadAll)
    }

    /// Whether it keeps its list in a file, or can be told to.
    pub(crate) fn keeps_a_file(self) -> bool {
        matches!(self, Self::Colors | Self::JsonServer0 | Self::JsonServer1)
    }

    /// Whether its contents are those of the API; json-server has its own.
    pub(crate) fn speaks_the_api(self) -> bool {
        !matches!(self, Self::JsonServer0 | Self::JsonServer1)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Colors => "colors",
            Self::Axum => "axum",
            Self::Actix => "actix-web",
            Self::Nginx => "nginx",
            Self::JsonServer0 => "json-server 0.17.4",
            Self::JsonServer1 => "json-server 1.0.0-beta.15",
        })
    }
}
