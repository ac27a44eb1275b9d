// Shared library of shared_library_test.cpp: copied under the names of libraries that the tests search.
extern "C" int fake_answer() {
  return 42;
}
