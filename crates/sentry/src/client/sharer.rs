//! One of several requests that share a connection: it has a client of its own.

use std::rc::Rc;

use http::HeaderMap;
use tidegate_engine::Timestamp;

use super::{Client, Wait};
use crate::door::Door;
use crate::http2::conduct::Counted;
use crate::permit::Arrival;

/// Its client, in its worker's list and with its bytes in the books; out of both when dropped.
pub(crate) struct Sharer {
    pub(crate) client: Rc<Client>,
    worker: Rc<Door>,
    key: usize,
    counted: Counted,
}

impl Sharer {
    /// A request with this head that came on `connection`, and for which that was decided; `None`: nothing yet.
    pub(crate) fn new(worker: &Rc<Door>, connection: &Client, arrival: Option<Arrival>, head: &HeaderMap) -> Self {
        let client = Client::new(connection.peer(), Timestamp::MAX);
        client.learn_from(connection);
        client.shed.set(false);
        client.pass(arrival.map(Box::new));
        client.wait(Wait::RequestBody, worker.deadline(|timeouts| timeouts.header));
        let key = worker.clients.borrow_mut().insert(client.clone());
        let counted = Counted::new(worker, client.peer().ip(), head);
        Sharer { client, worker: worker.clone(), key, counted }
    }

    /// This head came in a message and is held, or none is any more.
    pub(crate) fn hold(&mut self, head: Option<&HeaderMap>) {
        self.counted.hold(&self.worker, head);
    }

    /// Whether it is to give way at once: memory is short, and its client has much of it.
    pub(crate) fn gives_way(&self) -> bool {
        self.counted.gives_way(&self.worker)
    }
}

impl Drop for Sharer {
    fn drop(&mut self) {
        self.worker.clients.borrow_mut().remove(self.key);
        // Whoever has its body still counts nothing for it any more.
        self.client.is_stream.set(false);
        self.worker.count_gone(&self.client);
        self.client.end_message();
        self.counted.end(&self.worker);
    }
}
