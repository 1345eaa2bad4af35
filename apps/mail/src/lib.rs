//! The SEDA paper's Web mail service, made of stages that control themselves.
//!
//! Login, list folders, list messages, show message, delete, refile, search: a stage for each request type, one for
//! static files, one that only costs processor time, and a pool of database connections that they share. Data is in
//! SQLite or MariaDB. Source: Welsh and Culler, "Adaptive Overload Control for Busy Internet Servers" (2003),
//! section 4.1. How to run it is in `docs/mail.md`.
//!
//! | question | module |
//! |---|---|
//! | which page is where, how do answers look | [`http`], [`pages`] |
//! | what can be asked | [`request`] |
//! | which stages, with which admission control | [`policy`], [`service`] |
//! | what does a stage do | [`work`], [`render`] |
//! | who gets a connection to the database | [`pool`] |
//! | which statements | [`mailbox`], [`schema`], [`database`] |
//! | where does the mail come from | [`generate`] |
//! | a MariaDB for experiments and tests | [`private_mariadb`] |

#![forbid(unsafe_code)]

pub mod database;
pub mod generate;
pub mod http;
pub mod mailbox;
pub mod pages;
pub mod policy;
pub mod pool;
pub mod private_mariadb;
pub mod render;
pub mod request;
pub mod schema;
pub mod service;
pub mod work;
