//! nginx with a list's representations as static files: near the limit of what HTTP over loopback costs. Writes nothing for it to change.

use std::process::Command;

use crate::colors::{self, Color};
use crate::failure::Failure;
use crate::programs;
use crate::scratch::Scratch;
use crate::workload;

/// Serves `colors.json` and the files in `one/`; `DIR` and `PORT` are to be filled in.
///
/// No access log and no end of keep-alive, as with the other servers. The cache of open files spares it from opening one per request.
const CONFIGURATION: &str = "\
daemon off;
worker_processes auto;
pid DIR/nginx.pid;
events { worker_connections 4096; }
http {
    access_log off;
    sendfile on;
    tcp_nodelay on;
    default_type application/json;
    keepalive_requests 1000000000;
    open_file_cache max=1000;
    client_body_temp_path DIR/body;
    proxy_temp_path DIR/proxy;
    fastcgi_temp_path DIR/fastcgi;
    uwsgi_temp_path DIR/uwsgi;
    scgi_temp_path DIR/scgi;
    server {
        listen 127.0.0.1:PORT;
        location = /colors { alias DIR/colors.json; }
        location /colors/ { alias DIR/one/; }
    }
}
";

/// The command that serves the list, and the one color of it that is asked for.
///
/// # Errors
/// When nginx is not installed.
pub(crate) fn command(scratch: &Scratch, colors: &[Color], port: u16) -> Result<Command, Failure> {
    let program = programs::installed("nginx", "nginx-light")?;
    let directory = scratch.path().display().to_string();
    let configuration = CONFIGURATION.replace("DIR", &directory).replace("PORT", &port.to_string());
    let configuration = scratch.write("nginx.conf", &configuration)?;
    scratch.write("colors.json", &colors::envelope(colors))?;
    scratch.directory("one")?;
    let one = workload::target_color(colors);
    let one_json = serde_json::to_string(one).expect("strings always serialize");
    scratch.write(&format!("one/{}", one.name), &one_json)?;
    let mut command = Command::new(program);
    command.arg("-e").arg("stderr").arg("-p").arg(scratch.path()).arg("-c").arg(configuration);
    Ok(command)
}
