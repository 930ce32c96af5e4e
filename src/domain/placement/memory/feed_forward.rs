//! The feed-forward part of a layer, dense and of experts (`build_ffn`, `build_moe_ffn` of `llama-graph.cpp`).

use super::graph::{Elem, Id, Op};
use super::net::Net;
use crate::domain::placement::layout::ExpertShape;

impl Net<'_> {
    /// Feed-forward of a layer from its normed input: routed experts, shared experts, or dense.
    pub(super) fn feed_forward(&mut self, x: Id, layer: u32) -> Id {
        let experts = self.layout.experts;
        match experts.filter(|_| self.has(Some(layer), "ffn_gate_inp.weight")) {
            Some(experts) => self.mixture(x, layer, experts),
            None => self.dense(x, layer, ["ffn_up", "ffn_gate", "ffn_down"]),
        }
    }

    fn dense(&mut self, x: Id, layer: u32, [up, gate, down]: [&str; 3]) -> Id {
        let layer = Some(layer);
        let Some(up) = self.project(x, layer, up) else {
            return x;
        };
        let inner = match self.project(x, layer, gate) {
            Some(gate) => self.graph.like(Op::Glu, &[gate, up]),
            None => self.activated(up, layer, down),
        };
        self.project(inner, layer, down).unwrap_or(inner)
    }

    /// Without a gate of its own: gate and up in one matrix, or a plain activation.
    fn activated(&mut self, up: Id, layer: Option<u32>, down: &str) -> Id {
        let ne = self.graph.ne(up);
        let inner = self
            .dims(layer, &format!("{down}.weight"))
            .map_or(ne[0], |d| d[0]);
        if inner * 2 == ne[0] {
            self.graph.op(Op::Glu, &[inner, ne[1]], &[up])
        } else {
            self.graph.like(Op::Unary, &[up])
        }
    }

    fn mixture(&mut self, x: Id, layer: u32, experts: ExpertShape) -> Id {
        let (ids, weights) = self.route(x, layer, experts);
        let routed = self.routed(x, layer, experts, ids, weights);
        if !self.has(Some(layer), "ffn_up_shexp.weight") {
            return routed;
        }
        let shared = self.dense(
            x,
            layer,
            ["ffn_up_shexp", "ffn_gate_shexp", "ffn_down_shexp"],
        );
        let shared = match self.project(x, Some(layer), "ffn_gate_inp_shexp") {
            Some(gate) => {
                let gate = self.graph.like(Op::Unary, &[gate]);
                self.graph.like(Op::Mul, &[shared, gate])
            }
            None => shared,
        };
        self.graph.like(Op::Add, &[routed, shared])
    }

    /// Chooses each token's experts, and their weights.
    fn route(&mut self, x: Id, layer: u32, experts: ExpertShape) -> (Id, Id) {
        let (count, used, tokens) = (experts.count, experts.used, self.graph.ne(x)[1]);
        let logits = self.project(x, Some(layer), "ffn_gate_inp").unwrap_or(x);
        let late = self.layout.info.architecture == "gpt-oss";
        let bias = self.weight(Some(layer), "exp_probs_b.bias");
        let gate = if bias.is_some() {
            Op::Unary
        } else {
            Op::SoftMax
        };
        let probs = if late {
            logits
        } else {
            self.graph.like(gate, &[logits])
        };
        let choice = match bias {
            Some(bias) => self.graph.like(Op::Add, &[probs, bias]),
            None => probs,
        };
        let sorted = self
            .graph
            .typed(Op::ArgSort, &[count, tokens], Elem::I32, &[choice]);
        let ids = self.graph.part(sorted, &[used, tokens]);
        let flat = self.graph.view(Op::Reshape, probs, &[1, count, tokens]);
        let mut weights = self.graph.op(Op::GetRows, &[1, used, tokens], &[flat, ids]);
        weights = self.graph.view(Op::Reshape, weights, &[used, tokens]);
        weights = if late {
            self.graph.like(Op::SoftMax, &[weights])
        } else {
            let sum = self.graph.op(Op::SumRows, &[1, tokens], &[weights]);
            let sum = self.graph.like(Op::Clamp, &[sum]);
            self.graph.like(Op::Div, &[weights, sum])
        };
        weights = self.graph.view(Op::Reshape, weights, &[1, used, tokens]);
        self.graph.expand(weights);
        (ids, weights)
    }

    fn routed(&mut self, x: Id, layer: u32, experts: ExpertShape, ids: Id, weights: Id) -> Id {
        let used = experts.used;
        let [width, tokens, ..] = self.graph.ne(x);
        let each = self.graph.view(Op::Reshape, x, &[width, 1, tokens]);
        let inner = if let Some(both) = self.by_expert(each, layer, "ffn_gate_up_exps", ids) {
            let half = self.graph.ne(both)[0] / 2;
            let [gate, up] = [(); 2].map(|()| self.graph.part(both, &[half, used, tokens]));
            self.graph.op(Op::Glu, &[half, used, tokens], &[gate, up])
        } else {
            let up = self
                .by_expert(each, layer, "ffn_up_exps", ids)
                .unwrap_or(each);
            match self.by_expert(each, layer, "ffn_gate_exps", ids) {
                Some(gate) => self.graph.like(Op::Glu, &[gate, up]),
                None => self.graph.like(Op::Unary, &[up]),
            }
        };
        let down = self
            .by_expert(inner, layer, "ffn_down_exps", ids)
            .unwrap_or(inner);
        let weighted = self.graph.like(Op::Mul, &[down, weights]);
        self.graph.expand(weighted);
        let parts: Vec<Id> = (0..used)
            .map(|_| {
                let part = self.graph.part(weighted, &[width, tokens]);
                self.graph.expand(part);
                part
            })
            .collect();
        let mut sum = parts[0];
        for part in &parts[1..] {
            sum = self.graph.op(Op::Add, &[width, tokens], &[sum, *part]);
            self.graph.expand(sum);
        }
        if used == 1 {
            sum = self.graph.like(Op::Other, &[sum]);
        }
        sum
    }

    /// Multiplies each token by the matrices of its own experts.
    fn by_expert(&mut self, x: Id, layer: u32, name: &str, ids: Id) -> Option<Id> {
        let matrix = self.weight(Some(layer), &format!("{name}.weight"))?;
        let rows = self.graph.ne(matrix)[1];
        let [used, tokens, ..] = self.graph.ne(ids);
        let y = self
            .graph
            .op(Op::MulMatId, &[rows, used, tokens], &[matrix, x, ids]);
        Some(match self.weight(Some(layer), &format!("{name}.bias")) {
            Some(bias) => self.graph.like(Op::AddId, &[y, bias, ids]),
            None => y,
        })
    }
}
