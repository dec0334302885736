#include "ops/plain_scan.h"

#include <cmath>
#include <complex>
#include <type_traits>

#include "ops/tile.h"

namespace adder::ops {
namespace {

using Complex = std::complex<float>;

const std::byte* at(const ArrayView& x, int64_t i) {
  return x.data + i * x.step(0);
}

// Entry n of a vector that is real or complex.
template <typename T>
T load_number(const ArrayView& x, int64_t n) {
  const float real = load_float(at(x, n), x.dtype);
  if constexpr (std::is_same_v<T, Complex>) {
    const auto half = static_cast<int64_t>(dtype_size(x.dtype));
    return {real, x.is_complex ? load_float(at(x, n) + half, x.dtype) : 0.0f};
  } else {
    return real;
  }
}

template <typename T>
void store_number(T value, const ArrayView& x, int64_t n) {
  std::byte* address = x.data + n * x.step(0);
  store_float(std::real(value), address, x.dtype);
  if constexpr (std::is_same_v<T, Complex>)
    store_float(value.imag(), address + dtype_size(x.dtype), x.dtype);
}

// B or C of token t: the whole vector of states, to out.
template <typename T>
void load_coefficients(const ArrayView& x, int64_t t, int64_t dstate, T* out) {
  for (int64_t n = 0; n < dstate; ++n) {
    if (x.rank == 1) {
      out[n] = load_number<T>(x, n);
    } else if constexpr (std::is_same_v<T, Complex>) {
      const std::byte* real = at(x, 2 * t) + n * x.step(1);
      out[n] = {load_float(real, x.dtype), load_float(real + x.step(0), x.dtype)};
    } else {
      out[n] = load_float(at(x, t) + n * x.step(1), x.dtype);
    }
  }
}

template <typename T>
void scan(const PlainScan& s) {
  const int64_t dstate = s.A.dim(0);
  constexpr int64_t kFloats = std::is_same_v<T, Complex> ? 2 : 1;
  Scratch scratch(4 * Scratch::padded(kFloats * dstate));
  const auto numbers = [&] { return reinterpret_cast<T*>(scratch.take(kFloats * dstate)); };
  T *A = numbers(), *B = numbers(), *C = numbers(), *h = numbers();
  for (int64_t n = 0; n < dstate; ++n) {
    A[n] = load_number<T>(s.A, n);
    h[n] = s.state_in ? load_number<T>(s.state_in, n) : T(0);
  }
  const int64_t tokens = s.u.dim(0);
  for (int64_t t = 0; t < tokens; ++t) {
    if (t == 0 || s.B.rank == 2) load_coefficients(s.B, t, dstate, B);
    if (t == 0 || s.C.rank == 2) load_coefficients(s.C, t, dstate, C);
    const float u = load_float(at(s.u, t), s.u.dtype);
    float dt = load_float(at(s.delta, t), s.delta.dtype) + s.delta_bias;
    if (s.delta_softplus) dt = softplus(dt);
    float y = 0.0f;
    for (int64_t n = 0; n < dstate; ++n) {
      h[n] = std::exp(dt * A[n]) * h[n] + B[n] * (dt * u);
      y += std::real(C[n] * h[n]);
    }
    if (std::is_same_v<T, Complex>) y *= 2.0f;
    y += s.D * u;
    if (s.z) y *= silu(load_float(at(s.z, t), s.z.dtype));
    store_float(y, s.out.data + t * s.out.step(0), s.out.dtype);
  }
  if (!s.state_out) return;
  for (int64_t n = 0; n < dstate; ++n) store_number(h[n], s.state_out, n);
}

}  // namespace

void plain_scan(const PlainScan& s) {
  if (s.A.is_complex) {
    scan<Complex>(s);
  } else {
    scan<float>(s);
  }
}

float softplus(float v) {
  return v > 20.0f ? v : std::log1p(std::exp(v));
}

float silu(float v) {
  return v / (1.0f + std::exp(-v));
}

}  // namespace adder::ops
