// SPDX-License-Identifier: BSD-3-Clause
// main() of the tests. Ends with 77, which CTest counts as skipped, if every test of the program skipped itself, and
// with 1 if the filter leaves none, unless they are cut into shares: a program that tested nothing is no pass.
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>

#if defined(__SANITIZE_THREAD__)
// libstdc++ is not instrumented: ThreadSanitizer does not see that the reference count orders the last use of an
// exception before its end, in another thread.
extern "C" const char* __tsan_default_suppressions() {
    return "race:std::__exception_ptr::exception_ptr::_M_release\n";
}
#endif

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    const int result = RUN_ALL_TESTS();
    const auto& outcome = *testing::UnitTest::GetInstance();
    if (outcome.test_to_run_count() == 0 && std::getenv("GTEST_TOTAL_SHARDS") == nullptr) {
        std::fprintf(stderr, "%s: no test is left to run: does the filter name any?\n", argv[0]);
        return 1;
    }
    const bool nothing_ran = outcome.successful_test_count() == 0 && outcome.skipped_test_count() > 0;
    return result == 0 && nothing_ran ? 77 : result;
}
