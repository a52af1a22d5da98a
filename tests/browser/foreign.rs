//! What pages of other origins learn of the list.

use serde_json::json;

use crate::browser::driver::browse;
use crate::common::harness::Server;

/// What a page is told of an address by the elements that load one, and by fetch.
const TELL: &str = "const [address] = arguments;
    const told = (name, attributes) => new Promise(resolve => {
        const element = Object.assign(document.createElement(name), attributes);
        element.onload = () => resolve('load');
        element.onerror = () => resolve('error');
        document.body.append(element);
    });
    return Promise.all([
        told('object', {data: address}),
        told('object', {data: address, type: 'text/html'}),
        told('embed', {src: address}),
        told('iframe', {src: address}),
        told('img', {src: address}),
        told('script', {src: address}),
        told('link', {rel: 'stylesheet', href: address}),
        told('link', {rel: 'prefetch', href: address}),
        told('link', {rel: 'preload', as: 'script', href: address}),
        fetch(address, {mode: 'no-cors'}).then(answer => answer.type, error => error.name),
        fetch(address).then(answer => answer.status, error => error.name),
    ])";

#[test]
fn only_a_page_of_an_allowed_origin_can_tell_whether_a_color_exists() {
    let Some(browser) = browse() else { return };
    // a message for whatever is refused
    browser.expect("");
    // its health is a document that may load everything
    let other = Server::start(&[]);
    let origin = format!("http://{}", other.address);
    browser.go_without_waiting(&format!("{origin}/health"));
    for (arguments, statuses) in [
        (&[][..], [json!("TypeError"), json!("TypeError")]),
        (&["--allow-origin", &origin], [json!(200), json!(404)]),
    ] {
        let server = Server::start(arguments);
        let told = ["red", "nosuchcolor"].map(|name| {
            let address = format!("http://{}/colors/{name}", server.address);
            let mut told = browser.run_with(TELL, &json!([address]));
            let status = told.as_array_mut().unwrap().pop().unwrap();
            (told, status)
        });
        let [(of_red, red), (of_none, none)] = told;
        assert_eq!(of_red, of_none);
        assert_eq!([red, none], statuses);
    }
}
