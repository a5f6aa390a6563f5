# Of llama.cpp only the library: the code of its own programs takes longer to compile than the rest, and llama-cpp-python
# asks for it by force. CMake reads this right after project(llama.cpp).
set(LLAMA_BUILD_COMMON OFF)
# What builds graphs of operators is not hot, the operators are: theirs stay at -O3.
cmake_language(DEFER CALL target_compile_options llama PRIVATE -O1)
