//! Writes per second of concurrent durable writers. Measures colors only; that nothing is lost is shown in `tests/`.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::client::{Client, Request};
use crate::server::{Programs, Server};
use crate::table::{Table, median, number};
use crate::workload::{Color, colors};

pub(crate) fn print(programs: &Programs, rounds: u32, seconds: u32) -> Result<()> {
    let colors = colors(148);
    let server = Server::start_colors(Command::new(&programs.colors), "--data", &colors)?;
    let run = |writers| rate(&server, &colors[..writers], Duration::from_secs(seconds.into()));
    let rounds = (0..rounds).map(|_| Ok([run(1)?, run(64)?])).collect::<Result<Vec<_>>>()?;
    println!("\nDurable writes per second, 148 colors:\n");
    let table = Table::begin("1 writer | 64 writers | rate ×", 0);
    let middle = |of: fn(&[f64; 2]) -> f64| number(median(rounds.iter().map(of)));
    table.row([middle(|[one, _]| *one), middle(|[_, many]| *many), middle(|[one, many]| many / one)]);
    Ok(())
}

/// Writes per second when each of these colors has a writer, which sends a change once the one before is answered.
fn rate(server: &Server, colors: &[Color], time: Duration) -> Result<f64> {
    let began = Instant::now();
    let write = |color: &Color| {
        let mut client = Client::connect(server.address)?;
        let mut writes = 0;
        while began.elapsed() < time {
            writes += 1;
            let content = format!(r##"{{"value":"#{writes:06x}"}}"##); // another value each time
            client.ask(&Request::new("PUT", format!("/colors/{}", color.name), content))?;
        }
        Ok(writes)
    };
    let writes: u32 = thread::scope(|scope| {
        let threads: Vec<_> = colors.iter().map(|color| scope.spawn(move || write(color))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a writer does not panic")).sum::<Result<u32>>()
    })?;
    Ok(f64::from(writes) / began.elapsed().as_secs_f64())
}
