//! Lists that an earlier version has made: 1565f4d, the last one before lists in etcd had ids.

use crate::common::etcd::Etcd;
use crate::common::harness::{Scratch, Server, stored, wait_until};

/// What that version makes of the seed below by three changes, in FILE and in etcd.
const LIST: &str =
    r#"{"data":[{"name":"a","value":"3"},{"name":"a","value":"2"},{"name":"é\"","value":""}]}"#;

/// Comparisons, what is put if they hold, and what otherwise, as `etcdctl txn` reads them.
const KEY: &str = r##"mod("colors/list") = "0"

put colors/list {"format":1,"number":0,"colors":[[1,{"name":"red","value":"#f00"}],[2,{"name":"a","value":"1"}],[3,{"name":"a","value":"2"}]]}
put colors/log/0000000000000000 {"format":1,"id":"12d91fba7f570c0a","is_snapshot":true,"edits":[]}

get colors/list

"##;

const ENTRIES: [&str; 3] = [
    r#"{"format":1,"id":"053c85f8d4fa632d","is_snapshot":false,"edits":[[2,{"name":"a","value":"3"}]]}"#,
    r#"{"format":1,"id":"fe06e7449cfe8223","is_snapshot":false,"edits":[[1]]}"#,
    r#"{"format":1,"id":"da6eb70d8e4f3fca","is_snapshot":false,"edits":[[4,{"name":"é\"","value":""}]]}"#,
];

fn entry(number: usize) -> String {
    format!("colors/log/{number:016x}")
}

#[test]
fn a_file_of_an_earlier_version_is_the_list() {
    let scratch = Scratch::new();
    let file = scratch.write("colors.db", include_bytes!("made_by_1565f4d.db"));
    let server = Server::start(&["--data", &file]);
    assert_eq!(server.list(), LIST);
    server.ask("DELETE", "/colors/a", "").expect_status(200);
    server.stop();
    assert_eq!(stored(&file), LIST.replace(r#"{"name":"a","value":"3"},"#, ""));
}

#[test]
fn a_key_of_an_earlier_version_gets_an_id_and_is_shared_with_services_of_that_version() {
    let Some(etcd) = Etcd::start(1) else { return };
    etcd.txn(KEY);
    for (number, value) in (1..).zip(ENTRIES) {
        etcd.etcdctl(&["put", &entry(number), value]);
    }
    let url = etcd.url("colors");
    assert_eq!(stored(&url), LIST);
    assert_eq!(etcd.etcdctl(&["get", "colors/id"]), "", "a dump changes nothing");
    let servers = [(); 2].map(|()| Server::with_data("[]", &url, &[]));
    let ids = etcd.etcdctl(&["get", "colors/id"]);
    assert_eq!(ids.lines().count(), 2, "{ids}");
    // Each start has put a fence. A service of the earlier version commits behind them.
    let old =
        r##"{"format":1,"id":"0","is_snapshot":false,"edits":[[5,{"name":"old","value":""}]]}"##;
    etcd.txn(&format!("mod(\"{0}\") = \"0\"\n\nput {0} {old}\n\nget {0}\n\n", entry(6)));
    for server in &servers {
        wait_until("it is there", || server.ask("GET", "/colors/old", "").status == 200);
        server.ask("POST", "/colors", r#"{"name":"new","value":""}"#).expect_status(201);
    }
    // Services of the earlier version read these entries, and find no other key among them.
    let keys = etcd.etcdctl(&["get", "--prefix", "--keys-only", "colors/"]);
    let log = (0..9).map(|number| format!("{}\n", entry(number))).collect::<String>();
    assert_eq!(
        keys.replace("\n\n", "\n").trim_end(),
        format!("colors/id\ncolors/list\n{log}").trim_end()
    );
    assert_eq!(etcd.etcdctl(&["get", "colors/id"]), ids);
}
