//! Rules of RFC 9110 and 9112 that clients seldom try.

use crate::harness::Server;

#[test]
fn a_created_color_that_urls_cannot_name_has_no_location() {
    let server = Server::with_seed(r#"[{"name":"","value":"1"}]"#, &[]);
    // the URL standard takes `%2E` in a path for a dot segment, so that `/colors/%2E` would be `/colors/`: another color
    for (name, location) in
        [(".", None), ("..", None), ("...", Some("/colors/...")), (".a", Some("/colors/.a")), ("%2E", Some("/colors/%252E"))]
    {
        let made = server.ask("POST", "/colors", &format!(r#"{{"name":"{name}","value":"2"}}"#));
        assert_eq!((made.status, made.field("location")), (201, location), "{name}");
        assert_eq!(server.ask("GET", &format!("/colors/{}", name.replace('%', "%25")), "").content, made.content);
    }
}
