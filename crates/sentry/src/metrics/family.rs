//! Writing families of samples through the metrics library's encoder.

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, EncodeMetric, LabelSetEncoder, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::registry::Unit;

use crate::times::Example;

/// The labels of one sample.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Labels<'a>(Vec<(&'static str, &'a str)>);

impl<'a> Labels<'a> {
    pub(super) fn new(name: &'static str, value: &'a str) -> Self {
        Labels(Vec::with_capacity(4)).and(name, value)
    }

    /// These labels and one more.
    pub(super) fn and(mut self, name: &'static str, value: &'a str) -> Self {
        self.0.push((name, value));
        self
    }
}

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, value)| (*name, *value).encode(encoder.encode_label()))
    }
}

/// The families, being written.
pub(super) struct Families<'e> {
    encoder: DescriptorEncoder<'e>,
}

impl<'e> Families<'e> {
    pub(super) fn new(encoder: DescriptorEncoder<'e>) -> Self {
        Families { encoder }
    }

    pub(super) fn gauge<'a>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        samples: impl Iterator<Item = (Labels<'a>, f64)>,
    ) -> fmt::Result {
        self.family(name, help, unit, MetricType::Gauge, samples, |sample, value| sample.encode_gauge(&value))
    }

    pub(super) fn counter<'a>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl Iterator<Item = (Labels<'a>, u64)>,
    ) -> fmt::Result {
        self.counter_with_unit(name, help, None, samples)
    }

    pub(super) fn counter_with_unit<'a>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        samples: impl Iterator<Item = (Labels<'a>, u64)>,
    ) -> fmt::Result {
        self.family(name, help, unit, MetricType::Counter, samples, |sample, value| {
            sample.encode_counter::<NoLabelSet, _, u64>(&value, None)
        })
    }

    pub(super) fn counter_f64<'a>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        samples: impl Iterator<Item = (Labels<'a>, f64)>,
    ) -> fmt::Result {
        self.family(name, help, unit, MetricType::Counter, samples, |sample, value| {
            sample.encode_counter::<NoLabelSet, _, u64>(&value, None)
        })
    }

    pub(super) fn histogram<'a>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        samples: impl Iterator<Item = (Labels<'a>, &'a HistogramWithExemplars<Example>)>,
    ) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Histogram)?;
        for (labels, histogram) in samples {
            histogram.encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    pub(super) fn info<'a>(
        &mut self,
        name: &str,
        help: &str,
        labels: impl IntoIterator<Item = Labels<'a>>,
    ) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Info)?;
        labels.into_iter().try_for_each(|labels| metric.encode_info(&labels))
    }

    fn family<'a, T>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        kind: MetricType,
        samples: impl Iterator<Item = (Labels<'a>, T)>,
        write: impl Fn(&mut MetricEncoder<'_>, T) -> fmt::Result,
    ) -> fmt::Result {
        // A family without samples says nothing; some parsers trip over it.
        let mut samples = samples.peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let mut metric = self.encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (labels, value) in samples {
            if labels.0.is_empty() {
                write(&mut metric, value)?;
            } else {
                write(&mut metric.encode_family(&labels)?, value)?;
            }
        }
        Ok(())
    }
}
