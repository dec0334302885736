// Helpers of the server tests.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "server/api_error.h"

namespace adder::testing {

// The error that `work` throws; fails the test when it throws none.
template <typename Work>
ApiError api_error_of(const Work& work) {
  try {
    work();
  } catch (const ApiError& error) {
    return error;
  }
  ADD_FAILURE() << "expected an ApiError, got none";
  return ApiError(0, "");
}

}  // namespace adder::testing
