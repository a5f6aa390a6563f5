#include <gtest/gtest.h>
#include "kernel/text.hpp"
#include "kernel/evaluate.hpp"
#include "support/text.hpp"
#include "support/error.hpp"
#include "lower/arrange.hpp"
#include "tile/text.hpp"
#include <iostream>
int main(int argc,char**argv){ for(int i=1;i<argc;++i){ try{ auto t=kw::read_file(argv[i]); auto k=kw::kernel::parse_kernel(t); auto p=kw::kernel::print_kernel(k); if(p!=t) std::cout<<"DIFF "<<argv[i]<<"\n"<<p; else std::cout<<"same "<<argv[i]<<"\n"; if(kw::kernel::print_kernel(kw::kernel::parse_kernel(p))!=p) std::cout<<"NOT STABLE\n";}catch(const kw::Error&e){std::cout<<argv[i]<<"\n"<<kw::render(e)<<"\n";}}}
