// Programs made at random. A value that is a result of the program lives to its end; making results
// of all values of main must change no bits, or the interpreter frees or overwrites too early. XLA
// gets the programs too (ADDER_XLA_DUMP).
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "testing/inputs.h"
#include "testing/xla_program.h"

namespace adder::xla {
namespace {

using Shape = std::vector<int64_t>;
using Values = std::vector<Value>;

// Appends operations to a program on values of a pool. Numbers stay small, and nothing depends on
// float32 by a step (floor, comparisons), where rounding errors of two programs would show.
class RandomProgram {
 public:
  explicit RandomProgram(uint64_t seed) : rng_(seed) {
    for (int i = 0; i < 3; ++i) {
      const Shape shape = random_shape();
      const int64_t size = Type{Element::kF32, shape}.size();
      floats_.push_back(c_.input(host<float>(shape, rng_.uniforms(size, -1, 1))));
      std::vector<int32_t> list;
      for (int64_t k = 0; k < size; ++k) list.push_back(static_cast<int32_t>(rng_.below(7)) - 3);
      ints_.push_back(c_.input(host<int32_t>(shape, list)));
    }
  }

  // The steps, with a loop of some of them in the middle.
  ProgramCase& build(int steps) {
    for (int i = 0; i < steps; ++i) step();
    loop(steps);
    for (int i = 0; i < steps; ++i) step();
    return c_;
  }

  Values newest() const { return {floats_.back(), ints_.back()}; }

 private:
  Builder& b() { return c_.b; }
  const Shape& shape(Value v) { return b().type(v).shape; }
  Shape random_shape() {
    Shape shape;
    for (int64_t rank = rng_.below(4); rank > 0; --rank) shape.push_back(1 + rng_.below(4));
    return shape;
  }
  Value any(const Values& pool) { return pool[static_cast<size_t>(rng_.below(std::ssize(pool)))]; }
  // Another value, moved into a shape: cut down or repeated to its size.
  Value fitted(const Values& pool, const Shape& wanted) {
    Value v = any(pool);
    const int64_t size = Type{Element::kF32, wanted}.size();
    v = b().reshape(v, {b().type(v).size()});
    while (b().type(v).size() < size) v = b().concatenate({v, v}, 0);
    return b().reshape(b().slice_axis(v, 0, 0, size), wanted);
  }
  // A scalar that need not be within any range.
  Value index() { return b().reshape(fitted(ints_, {1}), {}); }

  void step() {
    Values& pool = rng_.below(2) ? floats_ : ints_;
    const bool is_float = &pool == &floats_;
    const Value v = any(pool);
    Value made = moved(v, pool);
    if (is_float && made == v) made = computed(v);
    if (!is_float && made == v) made = counted(v);
    if (is_float) made = b().multiply(made, b().constant(0.5f));
    // Integers stay small enough for products and sums of a few hundred of them.
    if (!is_float) made = b().binary(Opcode::kAnd, made, b().constant(0xffff));
    if (b().type(made).size() <= 512 && shape(made).size() <= 5) pool.push_back(made);
  }

  Value moved(Value v, const Values& pool) {
    const Shape s = shape(v);
    const auto rank = std::ssize(s);
    Shape axes, some, ones(s.size(), 1);
    for (int64_t i = 0; i < rank; ++i) {
      axes.push_back(i);
      some.push_back(1 + rng_.below(s[i]));
    }
    const int64_t axis = rank > 0 ? rng_.below(rank) : 0;
    const Value zero = pool == ints_ ? b().constant(0) : b().constant(0.0f);
    switch (rng_.below(rank > 0 ? 9 : 2)) {
      case 0:
        return b().broadcast(
            v,
            [&] {
              Shape t = s;
              t.insert(t.begin(), 2);
              return t;
            }(),
            [&] {
              Shape t = axes;
              for (int64_t& a : t) ++a;
              return t;
            }());
      case 2:
        std::rotate(axes.begin(), axes.begin() + axis, axes.end());
        return b().transpose(v, axes);
      case 3:
        return b().dynamic_slice(v, indices(rank), some);
      case 4:
        return b().dynamic_update(v, fitted(pool, some), indices(rank));
      case 5:
        return b().pad(v, zero, some, ones);
      case 6:
        return b().gather_rows(v, fitted(ints_, {3}));
      case 7:
        return b().reduce(Reducer::kMaximum, v, {axis});
      default:
        return v;
    }
  }

  Values indices(int64_t count) {
    Values list;
    for (int64_t i = 0; i < count; ++i) list.push_back(index());
    return list;
  }

  Value computed(Value v) {
    const Shape s = shape(v);
    const Value other = fitted(floats_, s);
    switch (rng_.below(8)) {
      case 0:
        return b().subtract(v, other);
      case 1:
        return b().multiply(v, other);
      case 2:
        return b().unary(Opcode::kExponential,
                         b().unary(Opcode::kNegate, b().unary(Opcode::kAbs, v)));
      case 3:
        return b().unary(Opcode::kRsqrt, b().add(b().multiply(v, v), b().constant(1.0f)));
      case 4:
        return b().divide(v, b().add(b().unary(Opcode::kAbs, other), b().constant(1.0f)));
      case 5:
        return b().select(b().compare(Comparison::kLt, fitted(ints_, s), b().constant(2)), v,
                          other);
      case 6: {
        const int64_t size = b().type(v).size();
        const Value scale = b().constant(1.0f / static_cast<float>(size));
        return b().multiply(b().reduce(Reducer::kAdd, b().reshape(v, {size}), {0}), scale);
      }
      default: {
        const int64_t depth = s.empty() ? 1 : s.back(), rows = b().type(v).size() / depth;
        const Value product =
            b().dot(b().reshape(v, {rows, depth}), fitted(floats_, {3, depth}), {{}, {}, {1}, {1}});
        return b().multiply(product, b().constant(1.0f / static_cast<float>(depth)));
      }
    }
  }

  Value counted(Value v) {
    const Value other = fitted(ints_, shape(v));
    switch (rng_.below(4)) {
      case 0:
        return b().add(v, other);
      case 1:
        return b().subtract(v, b().multiply(other, b().constant(3)));
      case 2:
        return b().binary(Opcode::kXor, v, other);
      default:
        return b().divide(v, b().maximum(other, b().constant(1)));
    }
  }

  void loop(int steps) {
    const Value x = any(floats_), n = any(ints_);
    const Values outer_floats = floats_, outer_ints = ints_;
    const Values r = b().loop(
        {b().constant(0), x, n},
        [&](auto c) { return Values{b().compare(Comparison::kLt, c[0], b().constant(3))}; },
        [&](auto c) {
          floats_.push_back(c[1]);
          ints_.push_back(c[2]);
          for (int i = 0; i < steps; ++i) step();
          return Values{b().add(c[0], b().constant(1)), fitted(floats_, shape(x)),
                        fitted(ints_, shape(n))};
        });
    floats_ = outer_floats;
    ints_ = outer_ints;
    floats_.push_back(r[1]);
    ints_.push_back(r[2]);
  }

  ProgramCase c_;
  testing::Rng rng_;
  Values floats_, ints_;
};

TEST(RandomProgram, NothingIsFreedOrOverwrittenTooEarly) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    // Numbers of at most about 1 after some forty operations, a few roundings each.
    const XlaTolerance tolerance{.relative = 2e-5, .absolute = 2e-6};
    RandomProgram few(seed), all(seed);
    ProgramCase& c = few.build(12);
    for (const Value v : few.newest()) c.b.result(v);
    const std::vector<HostValue> want = c.run(tolerance);
    ProgramCase& d = all.build(12);
    for (const Value v : all.newest()) d.b.result(v);
    for (size_t i = 0; i < d.program.main.ops.size(); ++i)
      for (const Value v : d.program.main.ops[i].results) d.b.result(v);
    const std::vector<HostValue> got = d.run(tolerance);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i].bytes, want[i].bytes) << i;
  }
}

}  // namespace
}  // namespace adder::xla
