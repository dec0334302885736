// While loops, the lives of values, and donated arguments.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "testing/xla_program.h"

namespace adder::xla {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<int32_t>;
using Values = std::vector<Value>;

// Counts carried[0] up to `end` and gives what `step` makes of the rest.
Values count_up(Builder& b, Value end, Values rest, const Builder::Region& step) {
  rest.insert(rest.begin(), b.constant(0));
  Values results = b.loop(
      rest, [&](auto carried) { return Values{b.compare(Comparison::kLt, carried[0], end)}; },
      [&](auto carried) {
        Values next = step(carried);
        next.insert(next.begin(), b.add(carried[0], b.constant(1)));
        return next;
      });
  results.erase(results.begin());
  return results;
}

TEST(Loop, CarriesValuesAndReadsOuterOnes) {
  ProgramCase c;
  const Value end = c.input(host<int32_t>({}, {3}));
  const Value x = c.input(host<float>({2}, {1, 10})), step = c.input(host<float>({2}, {0.5f, 2}));
  const Value twice = c.b.add(step, step);
  const Values r = count_up(c.b, end, {x}, [&](auto carried) {
    return Values{c.b.add(c.b.multiply(carried[1], c.b.constant(2.0f)), twice)};
  });
  c.b.result(r[0]);
  c.b.result(twice);  // lives on after the loop
  const std::vector<HostValue> got = c.run();
  EXPECT_EQ(values<float>(got[0]), (Floats{15, 108}));
  EXPECT_EQ(values<float>(got[1]), (Floats{1, 4}));
}

TEST(Loop, MayNotRunAtAll) {
  ProgramCase c;
  const Value x = c.input(host<float>({1}, {7}));
  c.b.result(count_up(c.b, c.b.constant(0), {x},
                      [&](auto carried) { return Values{c.b.add(carried[1], carried[1])}; })[0]);
  EXPECT_EQ(values<float>(c.run_one()), Floats{7});
}

TEST(Loop, ExchangesWhatItCarries) {
  ProgramCase c;
  const Value x = c.input(host<int32_t>({}, {0})), y = c.input(host<int32_t>({}, {1}));
  const Values r = count_up(c.b, c.b.constant(10), {x, y}, [&](auto carried) {
    return Values{carried[2], c.b.add(carried[1], carried[2])};
  });
  c.b.result(r[0]);
  c.b.result(r[1]);
  const std::vector<HostValue> got = c.run();
  EXPECT_EQ(values<int32_t>(got[0]), Ints{55});
  EXPECT_EQ(values<int32_t>(got[1]), Ints{89});
}

TEST(Loop, OneValueCarriedTwice) {
  ProgramCase c;
  const Value x = c.b.add(c.input(host<int32_t>({2}, {1, 2})), c.b.constant(0));
  const Value nine = c.b.fill(c.b.constant(9), {1});
  const Values r = count_up(c.b, c.b.constant(2), {x, x}, [&](auto carried) {
    return Values{c.b.dynamic_update(carried[1], nine, {c.b.constant(0)}),
                  c.b.add(carried[2], carried[1])};
  });
  c.b.result(r[0]);
  c.b.result(r[1]);
  const std::vector<HostValue> got = c.run();
  EXPECT_EQ(values<int32_t>(got[0]), (Ints{9, 2}));
  EXPECT_EQ(values<int32_t>(got[1]), (Ints{11, 6}));
}

// Row i of a table of sums: the outer loop goes over rows, the inner one over columns.
TEST(Loop, WithinALoop) {
  ProgramCase c;
  const Value table = c.input(host<int32_t>({3, 4}, Ints(12, 0)));
  const Value rows = c.input(host<int32_t>({}, {3})), columns = c.input(host<int32_t>({}, {4}));
  const Values r = count_up(c.b, rows, {table}, [&](auto outer) {
    const Value row = outer[0];
    const Value base = c.b.multiply(row, c.b.constant(10));
    return count_up(c.b, columns, {outer[1]}, [&](auto inner) {
      const Value cell = c.b.reshape(c.b.add(base, inner[0]), {1, 1});
      return Values{c.b.dynamic_update(inner[1], cell, {row, inner[0]})};
    });
  });
  c.b.result(r[0], 0);
  EXPECT_EQ(values<int32_t>(c.run_one()), (Ints{0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23}));
}

// The carried value is also read from outside by the body: it may not be overwritten.
TEST(Loop, BodyReadsTheInitialValue) {
  ProgramCase c;
  const Value x = c.b.add(c.input(host<int32_t>({2}, {1, 2})), c.b.constant(0));
  const Value nine = c.b.fill(c.b.constant(9), {1});
  const Values r = count_up(c.b, c.b.constant(3), {x}, [&](auto carried) {
    const Value marked = c.b.dynamic_update(carried[1], nine, {c.b.constant(0)});
    return Values{c.b.add(marked, x)};
  });
  c.b.result(r[0]);
  EXPECT_EQ(values<int32_t>(c.run_one()), (Ints{10, 8}));
}

TEST(Loop, GivesOuterValuesAsResults) {
  ProgramCase c;
  const Value x = c.input(host<int32_t>({}, {1})), y = c.input(host<int32_t>({}, {5}));
  const Values r = count_up(c.b, c.b.constant(2), {x}, [&](auto) { return Values{y}; });
  c.b.result(r[0]);
  c.b.result(y);
  const std::vector<HostValue> got = c.run();
  EXPECT_EQ(values<int32_t>(got[0]), Ints{5});
  EXPECT_EQ(values<int32_t>(got[1]), Ints{5});
}

// Of a loop with a sort, a product and a reduction inside: every region has names of its own.
TEST(Loop, WithRegionsInside) {
  ProgramCase c;
  const Value x = c.input(host<float>({3}, {1, 3, 2}));
  const Value m = c.input(host<float>({3, 3}, {0, 1, 0, 0, 0, 1, 1, 0, 0}));
  const Values r = count_up(c.b, c.b.constant(2), {x}, [&](auto carried) {
    const Value sorted = c.b.sort({carried[1]}, 0)[0];
    const Value total = c.b.reduce(Reducer::kAdd, sorted, {0});
    return Values{c.b.divide(c.b.dot(m, sorted, {{}, {}, {1}, {0}}), total)};
  });
  c.b.result(r[0]);
  // Sorted 3 2 1, rotated 2 1 3, over 6; then sorted 3 2 1 over 6, rotated.
  const Floats got = values<float>(c.run_one({.relative = 4e-7}));
  EXPECT_FLOAT_EQ(got[0], 2.0f / 6);
  EXPECT_FLOAT_EQ(got[1], 1.0f / 6);
  EXPECT_FLOAT_EQ(got[2], 3.0f / 6);
}

class Interpreted : public ::testing::Test {
 protected:
  static std::string message(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInternal);
      return error.what();
    }
    return "no error";
  }

  ArrayPtr array(const HostValue& value) { return executor_->upload(value.type, value.bytes); }
  Ints ints(Array& array) {
    HostValue value{array.type(), std::vector<std::byte>(array.type().bytes())};
    executor_->download(array, value.bytes);
    return values<int32_t>(value);
  }

  std::unique_ptr<Executor> executor_ = make_interpreter();
};

TEST_F(Interpreted, DonatedArgumentsAreGone) {
  Program program;
  Builder b(program);
  const Value x = b.argument({Element::kI32, {2}}), y = b.argument({Element::kI32, {2}});
  b.result(b.add(x, y), 0);
  const std::unique_ptr<Executable> executable = executor_->compile(program);
  EXPECT_EQ(executor_->compiled(), 1);
  EXPECT_EQ(executor_->from_cache(), 0);
  const ArrayPtr one = array(host<int32_t>({2}, {1, 2})), two = array(host<int32_t>({2}, {3, 4}));
  const std::vector<ArrayPtr> sum = executable->run(std::vector{one, two});
  EXPECT_EQ(ints(*sum[0]), (Ints{4, 6}));
  EXPECT_EQ(ints(*two), (Ints{3, 4}));
  const std::string gone =
      "xla interpreter: an array of tensor<2xi32> is used after it was donated";
  EXPECT_EQ(message([&] { ints(*one); }), gone);
  EXPECT_EQ(message([&] { executable->run(std::vector{two, one}); }), gone);
  EXPECT_EQ(ints(*two), (Ints{3, 4})) << "a run that failed consumes nothing";
  EXPECT_EQ(message([&] {
              executable->run(std::vector{two, two});
            }),
            "xla interpreter: argument 0 is donated and passed a second time");
}

TEST_F(Interpreted, UpdatesOfADonatedArgumentSpareOtherOwners) {
  Program keep, update;
  {
    Builder b(keep);
    b.result(b.argument({Element::kI32, {2}}));
  }
  {
    Builder b(update);
    const Value x = b.argument({Element::kI32, {2}});
    b.result(b.dynamic_update(x, b.fill(b.constant(9), {1}), {b.constant(0)}), 0);
  }
  const ArrayPtr first = array(host<int32_t>({2}, {1, 2}));
  const ArrayPtr same = executor_->compile(keep)->run(std::vector{first})[0];
  const ArrayPtr changed = executor_->compile(update)->run(std::vector{first})[0];
  EXPECT_EQ(ints(*same), (Ints{1, 2}));
  EXPECT_EQ(ints(*changed), (Ints{9, 2}));
}

// 75 values of 4 MiB one after another, in main and in the body of a loop: together 600 MiB.
TEST_F(Interpreted, FreesValuesAfterTheirLastUse) {
  const auto peak_mib = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss / 1024;
  };
  Program program;
  Builder b(program);
  const auto chain = [&](Value v) {
    for (int i = 0; i < 75; ++i) {
      b.add(v, v);  // nobody reads it
      v = b.add(v, b.constant(1));
    }
    return v;
  };
  Value x = chain(b.fill(b.constant(0), {1 << 20}));
  x = count_up(b, b.constant(1), {x}, [&](auto carried) { return Values{chain(carried[1])}; })[0];
  b.result(b.slice_axis(x, 0, 0, 1));
  const auto before = peak_mib();
  EXPECT_EQ(ints(*executor_->compile(program)->run({})[0]), Ints{150});
  // Some values at a time; the address sanitizer keeps 256 MiB of what was freed.
  EXPECT_LT(peak_mib() - before, 400);
}

TEST_F(Interpreted, RefusesWhatDoesNotFit) {
  Program program;
  Builder b(program);
  b.result(b.argument({Element::kI32, {2}}));
  const std::unique_ptr<Executable> executable = executor_->compile(program);
  const ArrayPtr three = array(host<int32_t>({3}, {1, 2, 3}));
  EXPECT_EQ(message([&] { executable->run({}); }), "xla interpreter: expected 1 arguments, got 0");
  EXPECT_EQ(message([&] { executable->run(std::vector{three}); }),
            "xla interpreter: argument 0: expected tensor<2xi32>, got tensor<3xi32>");
  EXPECT_EQ(message([&] {
              executor_->upload({Element::kF32, {3}}, {});
            }),
            "xla interpreter: upload of tensor<3xf32>: expected 12 bytes, got 0");
  EXPECT_EQ(message([&] { executor_->download(*three, {}); }),
            "xla interpreter: download of tensor<3xi32>: expected 12 bytes, got 0");
  program.donated.clear();
  EXPECT_EQ(message([&] { executor_->compile(program); }),
            "xla interpreter: expected 1 entries of donated, one for each result, got 0");
}

}  // namespace
}  // namespace adder::xla
