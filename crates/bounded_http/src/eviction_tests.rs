//! Above the connection limit: which connections make room, and how many.

use super::*;
use crate::policy::Closing;

#[test]
fn at_the_connection_limit_a_client_that_goes_on_reading_is_not_closed() {
    let (mut passes, client) = Passes::serving(&get("/current"));
    passes.shared().set_phase(Phase::AboveLimit);
    let _others = [(); 10].map(|()| Quota::new(Arc::clone(passes.shared()), 1));
    let mut received = vec![0; 50_000];
    for step in 1..=3 {
        assert_eq!(rustix::io::read(&client.0, &mut received), Ok(50_000));
        passes.pass_after(1);
        assert_eq!(passes.worker.connections.len(), 1, "step {step}");
    }
    // the kernel takes some more
    (0..10).for_each(|_| passes.pass_after(1));
    assert_eq!(passes.worker.connections.len(), 0);
    assert_eq!(passes.application.notes.closed(), [Closing::NoRoom]);
}

#[test]
fn at_the_connection_limit_as_many_give_way_as_others_wait_and_the_longest_stalled_first() {
    let mut passes = Passes::new();
    let connect = |_| {
        passes.now += Duration::from_secs(1);
        let client = passes.connect("GET /");
        passes.pass(&[]);
        client
    };
    let mut clients = [0, 1, 2, 3].map(connect);
    // two more than the limit
    let _others = [(); 8].map(|()| Quota::new(Arc::clone(passes.shared()), 1));
    passes.shared().set_phase(Phase::AboveLimit);
    (0..5).for_each(|_| passes.pass_after(1));
    let received = clients.each_mut().map(|client| client.received().concat());
    assert_eq!(received, ["503 refused close", "503 refused close", "", ""]);
    assert_eq!(passes.application.notes.closed(), [Closing::NoRoom; 2]);
}

#[test]
fn evicted_parked_requests_are_received_first_and_their_connections_close_a_pass_later() {
    let mut passes = Passes::new();
    let mut clients = [(); 3].map(|()| passes.connect(&get("/park")));
    passes.pass(&[]);
    passes.shared().set_phase(Phase::AboveLimit);
    // each of the two workers has to make room for two
    let _others = [(); 11].map(|()| Quota::new(Arc::clone(passes.shared()), 1));
    passes.pass_after(1);
    assert_eq!((passes.worker.connections.len(), passes.worker.run_queue.len()), (3, 2));
    assert!(clients.iter_mut().all(|client| client.received().is_empty()));
    // then for one more
    (0..10).for_each(|_| passes.pass_after(1));
    assert_eq!(passes.worker.connections.len(), 0);
    assert!(clients.iter_mut().all(|client| client.received() == ["200 /park Evicted close"]));
    assert_eq!(passes.application.notes.closed(), [Closing::NoRoom; 3]);
}
