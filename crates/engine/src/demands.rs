//! Demands of policies on the program that runs them.

/// What a policy needs from its driver beside arrivals and outcomes. Nothing is the default.
///
/// Its settings say it, so that it is known before the policy is built: drivers and configuration ask this, and never
/// which policy it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demands {
    /// It acts on [`LoadReport::Signal`](crate::LoadReport::Signal), and hears of a resource several times a second.
    pub signals: bool,
    /// It sets a rate for new connections, of which so many may come at once; `None`: all are let in.
    pub connections: Option<f64>,
    /// It counts requests in flight by kind, against the marks of [`MaxConn`](crate::MaxConn).
    pub kinds: bool,
    /// It goes by the servers' weights.
    pub weights: bool,
    /// It sends requests to servers of the role [`Data`](crate::Role::Data).
    pub lenders: bool,
    /// It has the cores of data servers divided.
    pub cores: bool,
}

impl Demands {
    /// What two policies of one application need together.
    pub fn and(self, other: Demands) -> Demands {
        Demands {
            signals: self.signals || other.signals,
            connections: self.connections.or(other.connections),
            kinds: self.kinds || other.kinds,
            weights: self.weights || other.weights,
            lenders: self.lenders || other.lenders,
            cores: self.cores || other.cores,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{AdmissionConfig, Demands, DispatchConfig, PartitionConfig};

    #[test]
    fn every_demand_is_some_policys() {
        let admission = AdmissionConfig::names_that_demand(|_| true).into_iter().filter_map(AdmissionConfig::from_name);
        let dispatch = DispatchConfig::names_that_demand(|_| true).into_iter().filter_map(DispatchConfig::from_name);
        let partition = PartitionConfig::NAMES.iter().filter_map(|name| PartitionConfig::from_name(name));
        let all = admission.map(|policy| policy.demands()).chain(dispatch.map(|policy| policy.demands()));
        let all = all.chain(partition.map(|policy| policy.demands())).fold(Demands::default(), Demands::and);
        let Demands { signals, connections, kinds, weights, lenders, cores } = all;
        assert!(signals && connections.is_some() && kinds && weights && lenders, "{all:?}");
        assert!(!cores, "only a measured profile divides cores");
        assert_eq!(AdmissionConfig::default().demands(), Demands::default());
    }
}
