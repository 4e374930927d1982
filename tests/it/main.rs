//! Black-box tests: they run the real binary and call it as Envoy, a browser and an operator do.
//! Those in `library` call the library instead.

mod admin;
mod bench;
mod calendar;
mod changes;
mod check_and_serve;
mod cli;
mod clients;
mod compat;
mod completions;
mod connections;
mod costs;
mod counters;
mod counters_command;
mod decision_log;
mod decisions_file;
mod envoy;
mod explain;
mod five_steps;
mod gzip;
mod headers;
mod health_command;
mod hostile;
mod image_size;
mod instructions;
mod json;
mod json_output;
mod leases;
mod library;
mod live_page;
mod log;
mod metrics;
mod openapi;
mod page_commands;
mod page_content;
mod page_yaml;
mod pauses;
mod plan;
mod plans;
mod plans_http;
mod python;
mod quotas;
mod reload;
mod replay;
mod request_log;
mod rlqs;
mod rolling;
mod rule_names;
mod secrets;
mod services;
mod site_links;
mod startup;
mod status_command;
mod tls;
mod top_command;
mod tower;
mod traces;
mod usage;
mod what_if;
mod xds;

#[allow(dead_code, unused_imports, reason = "each test binary uses its part")]
#[path = "../support"]
mod support {
    pub(crate) mod ads;
    pub(crate) mod certificates;
    pub(crate) mod collector;
    pub(crate) mod envoy;
    pub(crate) mod envoy_gateway;
    pub(crate) mod http;
    pub(crate) mod metrics_page;
    pub(crate) mod plans_page;
    pub(crate) mod plans_server;
    pub(crate) mod process;
    pub(crate) mod resident;
    pub(crate) mod rlqs;
    pub(crate) mod rls;
    pub(crate) mod secret;
    pub(crate) mod vectors;
    pub(crate) mod wait;
    pub(crate) mod weir;
    pub(crate) mod window_edge;
    pub(crate) mod yaml;
}
