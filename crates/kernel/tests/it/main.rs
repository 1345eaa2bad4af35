//! Real rules in network namespaces of the tests' own: a thread leaves for one and takes `nft` along. Needs root and
//! the program `nft`; without them each test says so and checks nothing, and with `CI=true` that is a failure.

mod helper;
mod measurements;
mod policing;
mod support;
