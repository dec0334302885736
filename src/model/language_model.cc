#include "model/language_model.h"

#include "core/error.h"

namespace adder {

LanguageModel::LanguageModel(std::shared_ptr<const Checkpoint> checkpoint, Backend& backend)
    : checkpoint_(std::move(checkpoint)),
      backend_(backend),
      config_(derive_config(*checkpoint_)),
      weights_(Weights::load(*checkpoint_, config_, backend_)) {}

// The forward pass. A step is a packed list of tokens; every line is one operation of the contract
// (src/kernels), in the order of the reference's modules (mamba_ssm.modules.block, mamba_simple,
// mamba2).
Tensor LanguageModel::forward(std::span<const int32_t> tokens, const PackedBatch& batch,
                              const StatePool& state, Workspace& ws) const {
  const int64_t n = batch.n_tokens();
  ADDER_CHECK(n == static_cast<int64_t>(tokens.size()) && n <= ws.max_tokens(),
              "forward: expected {} tokens, at most {}, got {}", n, ws.max_tokens(), tokens.size());
  const Tensor residual = ws.residual.rows(n), normed = ws.normed.rows(n),
               branch = ws.branch.rows(n);
  const float eps = config_.norm_eps;

  backend_.embedding({weights_.embedding, tokens, residual});
  for (int64_t i = 0; i < config_.n_layer; ++i) {
    const LayerWeights& w = weights_.layers[static_cast<size_t>(i)];
    if (i == 0) {
      backend_.rms_norm({residual, {}, w.norm, eps, normed});
    } else {
      backend_.rms_norm({branch, residual, w.norm, eps, normed});  // adds the last branch first
    }
    if (config_.mixer == MixerKind::kMamba1) {
      mamba1_mixer(w, batch, state.conv_state(i), state.ssm_state(i), ws);
    } else {
      mamba2_mixer(w, batch, state.conv_state(i), state.ssm_state(i), ws);
    }
  }
  backend_.rms_norm({branch, residual, weights_.norm_f, eps, normed});
  return normed;
}

// normed -> branch
void LanguageModel::mamba1_mixer(const LayerWeights& w, const PackedBatch& batch,
                                 const Tensor& conv_state, const Tensor& ssm_state,
                                 Workspace& ws) const {
  const int64_t n = batch.n_tokens(), e = config_.d_inner, r = config_.dt_rank, s = config_.d_state;
  const Tensor xz = ws.in_proj.rows(n), u = ws.conv.rows(n), x_dbl = ws.x_proj.rows(n);
  const Tensor delta = ws.delta.rows(n), y = ws.y.rows(n);
  const Tensor x = xz.slice(1, 0, e), z = xz.slice(1, e, e);
  const Tensor dt = x_dbl.slice(1, 0, r), B = x_dbl.slice(1, r, s), C = x_dbl.slice(1, r + s, s);

  backend_.matmul({ws.normed.rows(n), w.in_proj, w.in_proj_bias, xz});
  backend_.causal_conv1d({x, w.conv_weight, w.conv_bias, conv_state, true, u, batch});
  backend_.matmul({u, w.x_proj, {}, x_dbl});
  if (config_.bcdt_rms_eps) {  // Falcon-Mamba
    for (const Tensor& part : {dt, B, C}) {
      backend_.rms_norm({part, {}, {}, *config_.bcdt_rms_eps, part});
    }
  }
  backend_.matmul({dt, w.dt_proj, {}, delta});
  backend_.selective_scan({u, delta, w.A_log2e, B.split_last(1, s), C.split_last(1, s), w.D, z,
                           w.dt_bias, true, ssm_state, y, batch});
  backend_.matmul({y, w.out_proj, w.out_proj_bias, ws.branch.rows(n)});
}

// normed -> branch
void LanguageModel::mamba2_mixer(const LayerWeights& w, const PackedBatch& batch,
                                 const Tensor& conv_state, const Tensor& ssm_state,
                                 Workspace& ws) const {
  const int64_t n = batch.n_tokens(), e = config_.d_inner, h = config_.n_heads, p = config_.headdim;
  const int64_t g = config_.n_groups, s = config_.d_state, channels = config_.conv_channels();
  const Tensor zxbcdt = ws.in_proj.rows(n), xbc = ws.conv.rows(n), y = ws.y.rows(n);
  const Tensor z = zxbcdt.slice(1, 0, e), dt = zxbcdt.slice(1, e + channels, h);
  const Tensor x = xbc.slice(1, 0, e).split_last(h, p);
  const Tensor B = xbc.slice(1, e, g * s).split_last(g, s);
  const Tensor C = xbc.slice(1, e + g * s, g * s).split_last(g, s);
  const Tensor gate = config_.gated_norm ? Tensor() : z.split_last(h, p);

  backend_.matmul(
      {ws.normed.rows(n), w.in_proj, w.in_proj_bias, zxbcdt.slice(1, 0, w.in_proj.dim(0))});
  if (w.in_proj_dt) backend_.matmul({ws.normed.rows(n), w.in_proj_dt, w.in_proj_dt_bias, dt});
  ConvSsdNormArgs core{
      {zxbcdt.slice(1, e, channels), w.conv_weight, w.conv_bias, conv_state, true, xbc, batch},
      {x, dt, w.A_log2e, B, C, w.D, gate, w.dt_bias, true, config_.dt_min, config_.dt_max,
       ssm_state, y.split_last(h, p), batch},
      {}};
  if (config_.gated_norm) {
    // The epsilon of the gated norm is fixed upstream.
    core.norm = GatedRmsNormArgs{y, z, w.gated_norm, 1e-5f, g, config_.norm_before_gate, y};
  }
  backend_.conv_ssd_norm(core);
  backend_.matmul({y, w.out_proj, w.out_proj_bias, ws.branch.rows(n)});
}

Tensor LanguageModel::logits(const Tensor& hidden, std::span<const int32_t> rows,
                             Workspace& ws) const {
  const auto n = static_cast<int64_t>(rows.size());
  ADDER_CHECK(n <= ws.max_logit_rows(), "logits: expected at most {} rows, got {}",
              ws.max_logit_rows(), n);
  backend_.gather_rows(hidden, rows, ws.picked.rows(n));
  backend_.matmul({ws.picked.rows(n), weights_.lm_head, {}, ws.logits.rows(n)});
  return ws.logits.rows(n);
}

Workspace::Array Workspace::make(Backend& backend, int64_t rows, int64_t width) {
  Array a;
  a.buffer =
      backend.allocate(static_cast<size_t>(rows) * static_cast<size_t>(width) * sizeof(float));
  a.full = Tensor(a.buffer.data(), DType::kF32, {rows, width});
  return a;
}

Workspace::Workspace(const ModelConfig& c, Backend& backend, int64_t max_tokens,
                     int64_t max_logit_rows)
    : max_tokens_(max_tokens), max_logit_rows_(max_logit_rows) {
  ADDER_CHECK(max_tokens > 0 && max_logit_rows > 0,
              "workspace: expected sizes above 0, got {} and {}", max_tokens, max_logit_rows);
  for (Array* a : {&residual, &normed, &branch}) *a = make(backend, max_tokens, c.d_model);
  in_proj = make(backend, max_tokens, c.in_proj_rows());
  conv = make(backend, max_tokens, c.conv_channels());
  y = make(backend, max_tokens, c.d_inner);
  if (c.mixer == MixerKind::kMamba1) {
    x_proj = make(backend, max_tokens, c.dt_rank + 2 * c.d_state);
    delta = make(backend, max_tokens, c.d_inner);
  }
  picked = make(backend, max_logit_rows, c.d_model);
  logits = make(backend, max_logit_rows, c.vocab_rows);
}

}  // namespace adder
