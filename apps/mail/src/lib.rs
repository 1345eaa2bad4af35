//! The SEDA paper's Web mail service: a service made of stages that control themselves.
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
