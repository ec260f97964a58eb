//! Which of the requests that wait gets the next place.
//!
//! A client is an address; of IPv6 it is a network of 64 bits, which one subscriber has. The client with the fewest requests
//! under way goes first, and of several the one that has waited longest. An eighth of the places is never one client's, so
//! that another one need not wait until its requests have ended. Where the queue is full, a request makes room whose client
//! has most that wait, if the newcomer's has fewer. What comes from this machine is one client without a limit: it may be a
//! proxy, with many clients behind it.
//!
//! Invariants: no more places are taken than there are; who could begin does not wait.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Of so many places, and of so many connections, one is kept for others than the client that has the rest.
const ONE_OF: usize = 8;

/// The places of a service's requests, and who waits for one.
pub(super) struct Places {
    most_running: usize,
    most_waiting: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    clients: BTreeMap<IpAddr, Share>,
    running: usize,
    waiting: usize,
    /// How many have ever waited.
    waited: u64,
}

/// What one client has.
#[derive(Default)]
struct Share {
    running: usize,
    /// Those that wait, by when they came.
    waiting: BTreeMap<u64, oneshot::Sender<Place>>,
}

/// A place, which is somebody else's when it is dropped.
pub(super) struct Place {
    places: Arc<Places>,
    client: IpAddr,
}

/// One that waits, until it is dropped.
struct Waiter<'a> {
    places: &'a Places,
    client: IpAddr,
    number: u64,
}

impl Places {
    pub(super) fn new(most_running: usize, most_waiting: usize) -> Arc<Self> {
        Arc::new(Self {
            most_running,
            most_waiting,
            state: Mutex::default(),
        })
    }

    /// How many requests are under way, and how many wait.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.running, state.waiting)
    }

    /// Whether somebody could begin now.
    pub(super) fn has_free(&self) -> bool {
        self.state.lock().running < self.most_running
    }

    /// Waits for a place, but no longer than `patience`. `None` where there is no room to wait, or no more.
    pub(super) async fn take(
        self: &Arc<Self>,
        client: IpAddr,
        patience: Duration,
    ) -> Option<Place> {
        let client = client_of(client);
        let (number, place) = {
            let mut state = self.state.lock();
            if state.may_begin(client, self.most_running) {
                state.begin(client);
                return Some(self.place(client));
            }
            if state.waiting >= self.most_waiting {
                state.make_room(client)?;
            }
            state.wait(client)
        };
        let _waiter = Waiter {
            places: self,
            client,
            number,
        };
        tokio::time::timeout(patience, place).await.ok()?.ok()
    }

    fn place(self: &Arc<Self>, client: IpAddr) -> Place {
        let places = self.clone();
        Place { places, client }
    }
}

impl State {
    fn may_begin(&self, client: IpAddr, most: usize) -> bool {
        let own = self.clients.get(&client).map_or(0, |it| it.running);
        self.running < most && own < most_of_one(client, most)
    }

    fn begin(&mut self, client: IpAddr) {
        self.running += 1;
        self.clients.entry(client).or_default().running += 1;
    }

    fn wait(&mut self, client: IpAddr) -> (u64, oneshot::Receiver<Place>) {
        let (sender, place) = oneshot::channel();
        let number = self.waited;
        self.waited += 1;
        self.waiting += 1;
        let share = self.clients.entry(client).or_default();
        share.waiting.insert(number, sender);
        (number, place)
    }

    /// Refuses the last of the client with most that wait, if that has more than this one has with one more.
    fn make_room(&mut self, client: IpAddr) -> Option<()> {
        let own = self.clients.get(&client).map_or(0, |it| it.waiting.len());
        let all = self.clients.iter_mut();
        let (_, most) = all.max_by_key(|(_, share)| share.waiting.len())?;
        if most.waiting.len() <= own + 1 {
            return None;
        }
        most.waiting.pop_last();
        self.waiting -= 1;
        Some(())
    }

    /// Takes out who waits and goes first, if it may begin.
    fn next(&mut self, most: usize) -> Option<(IpAddr, oneshot::Sender<Place>)> {
        if self.waiting == 0 {
            return None;
        }
        let all = self.clients.iter();
        let may_begin = all.filter(|(client, _)| self.may_begin(**client, most));
        let first = may_begin.filter_map(|(client, share)| {
            let (number, _) = share.waiting.first_key_value()?;
            Some((share.running, *number, *client))
        });
        let (_, _, client) = first.min()?;
        let (_, sender) = self.clients.get_mut(&client)?.waiting.pop_first()?;
        self.waiting -= 1;
        self.begin(client);
        Some((client, sender))
    }

    fn forget_idle(&mut self, client: IpAddr) {
        let share = self.clients.get(&client);
        if share.is_some_and(|it| it.running == 0 && it.waiting.is_empty()) {
            self.clients.remove(&client);
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut state = self.places.state.lock();
        let share = state.clients.get_mut(&self.client);
        if share.is_some_and(|it| it.waiting.remove(&self.number).is_some()) {
            state.waiting -= 1;
        }
        state.forget_idle(self.client);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let next = {
            let mut state = self.places.state.lock();
            state.running -= 1;
            if let Some(share) = state.clients.get_mut(&self.client) {
                share.running -= 1;
            }
            let next = state.next(self.places.most_running);
            state.forget_idle(self.client);
            next
        };
        if let Some((client, sender)) = next {
            // Where nobody waits any more, the place comes back, and is dropped: without the lock.
            let _ = sender.send(self.places.place(client));
        }
    }
}

/// How many of `most` one client may have.
pub(super) fn most_of_one(client: IpAddr, most: usize) -> usize {
    match client.is_loopback() {
        true => most,
        false => most - most / ONE_OF,
    }
}

/// The client that an address is of.
pub(super) fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) if !ip.is_loopback() => {
            Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 64)).into()
        }
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};

    use futures_util::FutureExt as _;

    use super::*;

    const LONG: Duration = Duration::from_secs(100);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    type Taking<'a> = Pin<Box<dyn Future<Output = Option<Place>> + 'a>>;

    /// A request of this client, and what it has at once.
    fn ask<'a>(places: &'a Arc<Places>, client: &str) -> (Taking<'a>, Option<Option<Place>>) {
        let mut taking: Taking<'a> = Box::pin(places.take(ip(client), LONG));
        let now = taking.as_mut().now_or_never();
        (taking, now)
    }

    #[tokio::test]
    async fn the_client_with_the_fewest_requests_goes_first() {
        let places = Places::new(2, 4);
        let (_, one) = ask(&places, "192.0.2.1");
        let (_, two) = ask(&places, "192.0.2.1");
        let (third, _) = ask(&places, "192.0.2.1");
        let (fourth, _) = ask(&places, "192.0.2.1");
        let (other, _) = ask(&places, "192.0.2.2");
        assert_eq!(places.counts(), (2, 3));
        drop(one);
        // It came last.
        let other = other.now_or_never().flatten();
        assert!(other.is_some());
        drop(two);
        let third = third.now_or_never().flatten();
        assert!(third.is_some());
        drop((other, third));
        drop(fourth);
        assert_eq!(places.counts(), (0, 0));
        assert!(places.state.lock().clients.is_empty());
    }

    #[tokio::test]
    async fn some_places_are_for_others() {
        let places = Places::new(8, 8);
        let flood: Vec<_> = (0..8).map(|_| ask(&places, "192.0.2.1")).collect();
        assert_eq!(places.counts(), (7, 1));
        let (_, other) = ask(&places, "192.0.2.2");
        assert!(other.flatten().is_some());
        drop(flood);
        let proxy: Vec<_> = (0..8).map(|_| ask(&places, "127.0.0.1")).collect();
        assert_eq!(places.counts(), (8, 0));
        drop(proxy);
        assert!(places.state.lock().clients.is_empty());
    }

    #[tokio::test]
    async fn a_full_queue_makes_room_for_who_has_less_in_it() {
        let places = Places::new(1, 2);
        let (_, running) = ask(&places, "192.0.2.1");
        let (first, _) = ask(&places, "192.0.2.1");
        let (second, _) = ask(&places, "192.0.2.1");
        let (_, more) = ask(&places, "192.0.2.1");
        assert!(matches!(more, Some(None)), "it has as many as fit");
        let (other, now) = ask(&places, "192.0.2.2");
        assert!(now.is_none(), "it waits");
        assert!(matches!(second.now_or_never(), Some(None)));
        let (_, more) = ask(&places, "192.0.2.2");
        assert!(matches!(more, Some(None)), "both have one");
        drop(running);
        assert!(first.now_or_never().flatten().is_some());
        assert!(other.now_or_never().flatten().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_ever_and_a_place_for_who_is_gone_is_the_next_ones() {
        let places = Places::new(1, 2);
        let (_, running) = ask(&places, "192.0.2.1");
        let late = pin!(places.take(ip("192.0.2.1"), Duration::from_secs(1)));
        assert!(late.await.is_none());
        let (gone, _) = ask(&places, "192.0.2.1");
        let (next, _) = ask(&places, "192.0.2.1");
        drop(running);
        // It had the place, and does not know.
        drop(gone);
        assert!(next.now_or_never().flatten().is_some());
        assert_eq!(places.counts(), (0, 0));
    }

    #[test]
    fn a_client_of_ipv6_is_a_network() {
        assert_eq!(client_of(ip("2001:db8::1")), client_of(ip("2001:db8::2:1")));
        assert_ne!(
            client_of(ip("2001:db8::1")),
            client_of(ip("2001:db8:0:1::1"))
        );
        assert_eq!(client_of(ip("::ffff:192.0.2.1")), ip("192.0.2.1"));
        assert_eq!(most_of_one(client_of(ip("::1")), 1), 1);
        assert_eq!(most_of_one(ip("192.0.2.1"), 1), 1);
    }
}
