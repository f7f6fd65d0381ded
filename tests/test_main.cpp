// SPDX-License-Identifier: BSD-3-Clause
// main() of the tests. Ends with 77, which CTest counts as skipped, if every test of the program skipped itself: a
// program that tested nothing is no pass.
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
    const bool nothing_ran = outcome.successful_test_count() == 0 && outcome.skipped_test_count() > 0;
    return result == 0 && nothing_ran ? 77 : result;
}
