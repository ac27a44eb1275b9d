#include <gtest/gtest.h>

#include "core/log.h"

int main(int argc, char** argv) {
  quench::init_logging();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
