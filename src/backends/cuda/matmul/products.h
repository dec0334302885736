// Products out = x * weight^T: what the two families, float weights and block formats, share.
//
// Both compute tiles of 16 outputs and 8 rows of x ("tokens") on the tensor cores: the weights are
// the 16-row operand even where there is one token, so that a decode step and a prompt run the same
// instructions. Each has a skinny kernel for up to 16 tokens, which streams the weights once (a
// thread block per 16 outputs, its warps along k), and a wide one with tiles in shared memory.
//
// The order of sums, which both kernels keep, depends on in_features alone:
//   k is cut into strips of 128, and strips are joined to chains, of one strip each as long as that
//   makes at most 64. The sum of a chain starts at 0 and runs over its groups of 32 in ascending
//   order, every mma of it with the same elements in the same places. The sums of the chains are
//   added in float32 in ascending order, and then the bias.
// So a token's result has the same bits in any company. A chain is short on purpose: tensor cores
// may truncate where they add, and a sum of 128 products cannot lose much.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cuda/context.h"
#include "kernels/matmul.h"

namespace adder::ADDER_CUDA_NS {

inline constexpr int kGroup = 32;  // elements of k
inline constexpr int kStripGroups = 4;
inline constexpr int kStrip = kGroup * kStripGroups;

struct Chains {
  int32_t groups;        // of 32, the last one perhaps in part
  int32_t strips;        // of 4 groups
  int32_t chain_strips;  // strips in a chain
  int32_t count;         // chains
};

constexpr Chains chains_of(int64_t in_features) {
  constexpr int32_t kMaxChains = 64;
  Chains c{};
  c.groups = static_cast<int32_t>((in_features + kGroup - 1) / kGroup);
  c.strips = (c.groups + kStripGroups - 1) / kStripGroups;
  c.chain_strips = std::max(1, (c.strips + kMaxChains - 1) / kMaxChains);
  c.count = (c.strips + c.chain_strips - 1) / c.chain_strips;
  return c;
}

inline constexpr int64_t kSkinnyTokens = 16;
// Tokens that share a launch of the wide kernels, so that their scratch memory stays small.
inline constexpr int64_t kPieceTokens = 4096;

// Products with F32, F16 and BF16 weights, and with the block formats, as import_weight leaves
// them. No operand is empty but perhaps along k.
void float_matmul(CudaContext& context, const MatmulArgs& a);
void block_matmul(CudaContext& context, const MatmulArgs& a);

}  // namespace adder::ADDER_CUDA_NS
