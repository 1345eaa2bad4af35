//! Emulated servers and the load generator before them, from outside; in one program.

mod capacity;
mod dashboard;
mod faults;
mod http2;
mod lifecycle;
mod load;
mod manners;
mod measurements;
mod nuclei;
mod oracle;
mod prometheus;
mod spoken;
mod support;
mod theory;
