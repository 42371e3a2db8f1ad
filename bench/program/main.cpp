#include "program/common/context.hpp"

int main(int argc, char** argv) { return gradwire::program::run_program(argc, argv); }
