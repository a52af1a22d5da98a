//! How long a read of one color takes beside a client that writes, when each sync of the disk takes
//! long: colors with `--data`, and Redis. strace delays the return of fsync and fdatasync, in the
//! same way for both. Judges nothing.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::Args;
use crate::client::{Client, Request, redis_command};
use crate::isolation::{Run, pace, row};
use crate::server::{Kind, Programs, Server};
use crate::table::{Summary, Table};
use crate::workload::{Color, colors};
use crate::writers::Contestant;

/// What each sync takes longer than this machine's disk, in milliseconds: 10 is a card of flash
/// memory, and 50 one that is busy.
const DELAYS: [u32; 4] = [0, 1, 10, 50];

pub(crate) const SUMMARY_TITLE: &str = "each sync takes longer by";

const TITLES: &str = "sync, ms | server | p50 ms              | p99 ms              | longest ms | changes/s          ";

pub(crate) fn print(args: &Args, programs: &Programs) -> Result<()> {
    println!("\nReads of one color beside one client that writes, with slow syncs:\n");
    let (table, mut summary) = (Table::begin(TITLES, 0), Summary::new());
    let colors = colors(148);
    for delay in DELAYS {
        let slowed = |program: &OsStr| {
            let mut command = Command::new("strace");
            // -D: the server is the child, and strace is not
            command.args(["-D", "-f", "--seccomp-bpf", "-qqq", "-o", "/dev/null", "-e"]);
            command.arg(format!("inject=fsync,fdatasync:delay_exit={}", delay * 1000));
            command.arg(program);
            command
        };
        let product = slowed(programs.program(Kind::Colors)?.as_os_str());
        let product = Server::start_colors(product, &colors, true)?;
        let redis = Server::start_redis(slowed("redis-server".as_ref()), true)?;
        let mut contestants = [
            (product.address, Contestant::Colors(Kind::Colors, product), Vec::new()),
            (redis.address, Contestant::Redis(redis), Vec::new()),
        ];
        for round in 1..=args.rounds {
            for (address, contestant, runs) in &mut contestants {
                eprintln!("disk, {delay} ms, round {round}: {}", contestant.name());
                runs.push(measure(*address, contestant, &colors, args.seconds)?);
            }
        }
        for (_, contestant, runs) in &contestants {
            let row = row(runs);
            for (title, cell) in ["p50 ms", "p99 ms"].iter().zip(&row) {
                let column = format!("{}: {title}", contestant.name());
                summary.add(&format!("{delay} ms"), &column, cell.clone());
            }
            let words = [delay.to_string(), contestant.name().to_owned()];
            table.row(words.into_iter().chain(row));
        }
    }
    summary.print(SUMMARY_TITLE);
    Ok(())
}

/// Reads a color for some seconds while another client changes colors, each as soon as the one
/// before is on the disk.
fn measure(
    address: SocketAddr,
    contestant: &mut Contestant,
    colors: &[Color],
    seconds: u32,
) -> Result<Run> {
    let color = &colors[colors.len() / 2];
    let mut client = Client::connect(address)?;
    let is_redis = matches!(contestant, Contestant::Redis(_));
    let request = if is_redis {
        client.send_bytes(&redis_command(&["SET", &color.name, &color.value]))?;
        client.receive_line()?;
        redis_command(&["GET", &color.name])
    } else {
        Request::new("GET", format!("/colors/{}", color.name), "").bytes()
    };
    if !is_redis {
        // The socket listens before FILE is made: the first answer waits for the syncs of the
        // start.
        client.send_bytes(&request)?;
        client.receive()?;
    }
    thread::scope(|scope| {
        let time = Duration::from_secs(seconds.into());
        let writer = scope.spawn(move || contestant.run(colors, 1, time));
        let times = pace(seconds, || {
            client.send_bytes(&request)?;
            if is_redis {
                let answer = client.receive_line()? + &client.receive_line()?;
                ensure!(answer.starts_with("$7\r\n#"), "Redis answered with {answer:?}");
            } else {
                client.receive()?;
            }
            Ok(())
        })?;
        let writer = writer.join().expect("a client does not panic")?;
        Ok(Run { times, others: writer.rate })
    })
}
