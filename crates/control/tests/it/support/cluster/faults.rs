//! What goes wrong on purpose, and what others do meanwhile.

use std::collections::VecDeque;

use axum::http::{Method, Uri};
use serde_json::{Value, json};

use super::Api;

type Hook = Box<dyn FnOnce() + Send>;
/// A request with its body.
type Write = (Method, Uri, Value);

#[derive(Default)]
pub struct Faults {
    refusals: VecDeque<(&'static str, u16, Option<u64>)>,
    /// A scale that is read changes right after, so many times.
    meddling: u32,
    /// Requests whose method and path contain this are carried out, and answered with a failure.
    lost: VecDeque<&'static str>,
    /// After so many more requests nothing is answered any more.
    gone_after: Option<usize>,
    /// The write of ConfigMaps after so many more of them is answered as if it were not carried out, and is so before
    /// the request after so many more.
    late: Option<(usize, usize)>,
    due: Option<(usize, Write)>,
    /// What is done before the request after so many more of those that contain this.
    before: Option<(&'static str, usize, Hook)>,
}

impl Api {
    /// The next requests whose method and path contain `what` get this status, and how long to wait, seconds.
    pub fn fail(&self, times: usize, what: &'static str, status: u16, retry_after: Option<u64>) {
        self.inner().faults.refusals.extend(std::iter::repeat_n((what, status, retry_after), times));
    }

    /// No request is refused any more.
    pub fn fail_none(&self) {
        self.inner().faults.refusals.clear();
    }

    /// The next requests whose method and path contain `what` are carried out, and answered as if they were not.
    pub fn lose(&self, times: usize, what: &'static str) {
        self.inner().faults.lost.extend(std::iter::repeat_n(what, times));
    }

    /// Every answer arrives again.
    pub fn lose_none(&self) {
        self.inner().faults.lost.clear();
    }

    /// Answers so many more requests, and then none; `None`: all, again.
    pub fn gone_after(&self, requests: Option<usize>) {
        self.inner().faults.gone_after = requests;
    }

    /// Takes requests and answers none of them, as a process that is stopped; or goes on with those that still wait.
    pub fn stand_still(&self, is: bool) {
        self.stands_still.send_replace(is);
    }

    /// The write of ConfigMaps after `skip` of them is answered as if it were not carried out; it is so `after`
    /// requests later.
    pub fn delay(&self, skip: usize, after: usize) {
        self.inner().faults.late = Some((skip, after));
    }

    /// Does something before it looks at a request whose method and path contain `what`, after `skip` of them.
    pub fn before(&self, what: &'static str, skip: usize, hook: impl FnOnce() + Send + 'static) {
        self.inner().faults.before = Some((what, skip, Box::new(hook)));
    }

    /// Whether what is to be done before a request waits for it still; it does no more.
    pub fn forget_before(&self) -> bool {
        self.inner().faults.before.take().is_some()
    }

    /// Somebody else writes a scale right after it was read, so many times.
    pub fn meddle(&self, times: u32) {
        self.inner().faults.meddling = times;
    }

    /// The names of the objects of a resource.
    pub fn names(&self, resource: &str) -> Vec<String> {
        self.inner().objects.keys().filter(|key| key.0 == resource).map(|key| key.2.clone()).collect()
    }

    /// An object as it is; null when there is none.
    pub fn object(&self, resource: &str, name: &str) -> Value {
        let inner = self.inner();
        let found = inner.objects.iter().find(|(key, _)| key.0 == resource && key.2 == name);
        found.map(|(_, object)| object.clone()).unwrap_or_default()
    }

    /// There is an object where kubeconfigs lead to.
    pub fn make(&self, resource: &str, name: &str) {
        let key = (resource.to_owned(), String::from("home"), name.to_owned());
        drop(self.inner().keep("ADDED", key, json!({ "metadata": { "name": name } })));
    }

    /// Somebody gives a pod the label of leaders by hand, or takes it.
    pub fn label(&self, pod: &str, value: Option<&str>) {
        let mut inner = self.inner();
        let key = (String::from("pods"), String::from("home"), pod.to_owned());
        let mut object = inner.objects[&key].clone();
        super::merge(&mut object, &json!({ "metadata": { "labels": { "tidegate.io/role": value } } }));
        drop(inner.keep("MODIFIED", key, object));
    }

    /// Somebody deletes an object by hand.
    pub fn delete(&self, resource: &str, name: &str) {
        self.inner().objects.retain(|key, _| !(key.0 == resource && key.2 == name));
    }

    /// Somebody puts a label on an object by hand: its version is another one.
    pub fn touch(&self, resource: &str, name: &str) {
        let mut inner = self.inner();
        let found = inner.objects.iter().find(|(key, _)| key.0 == resource && key.2 == name);
        let Some((key, mut object)) = found.map(|(key, object)| (key.clone(), object.clone())) else { return };
        object["metadata"]["labels"]["touched"] = json!("yes");
        drop(inner.keep("MODIFIED", key, object));
    }
}

impl Faults {
    /// What is to be done before this request.
    pub fn take_hook(&mut self, line: &str) -> Option<Hook> {
        let (what, skip, _) = self.before.as_mut()?;
        // Nobody waits for a list or a deletion.
        let is_aside = line.starts_with("DELETE") || line.starts_with("GET") && line.ends_with("configmaps");
        if is_aside || !line.contains(*what) {
            return None;
        }
        if *skip > 0 {
            *skip -= 1;
            return None;
        }
        self.before.take().map(|(.., hook)| hook)
    }

    /// The status that this request gets instead of an answer, and how long to wait, seconds.
    pub fn refuses(&mut self, line: &str) -> Option<(u16, Option<u64>)> {
        match &mut self.gone_after {
            Some(0) => return Some((500, None)),
            Some(left) => *left -= 1,
            None => {}
        }
        let at = self.refusals.iter().position(|(what, ..)| line.contains(what))?;
        self.refusals.remove(at).map(|(_, status, retry_after)| (status, retry_after))
    }

    /// Whether the answer to this request, which was carried out, does not arrive.
    pub fn loses(&mut self, line: &str) -> bool {
        let at = self.lost.iter().position(|what| line.contains(what));
        at.and_then(|at| self.lost.remove(at)).is_some()
    }

    /// Whether this request is carried out later only.
    pub fn delays(&mut self, method: &Method, uri: &Uri, body: &Value) -> bool {
        let is_write = matches!(*method, Method::PUT | Method::POST) && uri.path().contains("/configmaps");
        let Some((skip, after)) = self.late.as_mut().filter(|_| is_write) else { return false };
        if *skip > 0 {
            *skip -= 1;
            return false;
        }
        self.due = Some((*after, (method.clone(), uri.clone(), body.clone())));
        self.late = None;
        true
    }

    /// What was to be carried out later, when it is time.
    pub fn take_due(&mut self) -> Option<Write> {
        let (left, _) = self.due.as_mut()?;
        if *left > 0 {
            *left -= 1;
            return None;
        }
        self.due.take().map(|(_, write)| write)
    }

    /// Whether somebody else writes now.
    pub fn meddles(&mut self) -> bool {
        let does = self.meddling > 0;
        self.meddling -= u32::from(does);
        does
    }
}
